// Whole tests between two threads over the fake fabric.
#include "perf/run.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "verbs/fake/fake_provider.h"

namespace beeline::perf {
namespace {

struct Recorder : Observer {
  void agreed(const Agreement& agreement) override {
    seen = agreement;
    if (on_agreed) on_agreed();
  }
  void row(const Row& row) override { rows.push_back(row); }
  void progress(std::uint64_t, std::uint64_t, Duration) override {}
  std::optional<Agreement> seen;
  std::vector<Row> rows;
  std::function<void()> on_agreed;
};

struct Ends {
  Result<Report> client = fail(Errc::internal, "not run");
  Result<Report> server = fail(Errc::internal, "not run");
  Recorder client_saw, server_saw;
};

class WholeTest : public testing::Test {
 protected:
  void use(const verbs::FakeOptions& options) { provider_ = verbs::make_fake_provider(options); }

  Options options_for(const char* test, std::uint64_t iterations = 300) {
    Options options;
    options.test = find_test(test);
    options.iterations = iterations;
    options.size_bytes = 1000;
    options.tx_depth = 16;
    return options;
  }

  void run(const Options& client, const Options& server) {
    int fds[2] = {};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    std::thread other([&] {
      Channel channel(Descriptor{fds[1]}, "the client");
      auto device = open_device(*provider_, server);
      ASSERT_TRUE(device) << device.error().message;
      ends_.server = run_server(server, *device, channel, ends_.server_saw);
    });
    {
      Channel channel(Descriptor{fds[0]}, "the server");
      auto device = open_device(*provider_, client);
      EXPECT_TRUE(device);
      if (device) ends_.client = run_client(client, *device, channel, ends_.client_saw);
    }
    other.join();
  }
  void run(const Options& both) { run(both, both); }

  void expect_success(std::uint64_t iterations) {
    ASSERT_TRUE(ends_.client) << ends_.client.error().message;
    ASSERT_TRUE(ends_.server) << ends_.server.error().message;
    ASSERT_EQ(ends_.client->rows.size(), 1u);
    const Row& row = ends_.client->rows[0];
    EXPECT_EQ(row.iterations, iterations);
    EXPECT_EQ(row.verdict.wrong_bytes, 0u) << row.verdict.first;
    if (row.bandwidth) {
      EXPECT_GT(row.bandwidth->average_bytes_per_s, 0);
      EXPECT_GE(row.bandwidth->peak_bytes_per_s, row.bandwidth->average_bytes_per_s);
    } else {
      ASSERT_TRUE(row.latency);
      EXPECT_EQ(row.latency->samples, iterations);
      EXPECT_LE(row.latency->min_us, row.latency->median_us);
      EXPECT_LE(row.latency->median_us, row.latency->max_us);
    }
  }

  std::unique_ptr<verbs::FakeProvider> provider_ = verbs::make_fake_provider();
  Ends ends_;
};

TEST_F(WholeTest, EveryTestCompletes) {
  for (const perf::Test& test : all_tests()) {
    SCOPED_TRACE(test.name);
    run(options_for(test.name.data()));
    expect_success(300);
    EXPECT_EQ(ends_.client->rows[0].verdict.checked_bytes, 0u);
  }
}

TEST_F(WholeTest, EveryTestChecksEveryByte) {
  for (const perf::Test& test : all_tests())
    for (const auto delivery :
         {verbs::FakeOptions::Delivery::immediate, verbs::FakeOptions::Delivery::threaded})
      for (const bool in_order : {true, false}) {
        SCOPED_TRACE(testing::Message()
                     << test.name << " threaded " << static_cast<int>(delivery) << in_order);
        use({.delivery = delivery, .data_in_order = in_order});
        Options options = options_for(test.name.data(), 100);
        options.check = true;
        run(options);
        expect_success(100);
        const bool ping_pong = test.latency && test.operation != Operation::read;
        const bool marked = test.operation == Operation::write && test.latency && in_order;
        EXPECT_EQ(ends_.client->rows[0].verdict.checked_bytes,
                  (ping_pong ? 200u : 100u) * (marked ? 999u : 1000u));
      }
}

TEST_F(WholeTest, BothDirectionsAndManyQueuePairs) {
  for (const char* test : {"write_bw", "read_bw", "send_bw"})
    for (const bool check : {false, true}) {
      SCOPED_TRACE(testing::Message() << test << check);
      Options options = options_for(test, 100);
      options.bidirectional = true;
      options.queue_pairs = 3;
      options.check = check;
      run(options);
      expect_success(600);
      EXPECT_EQ(ends_.client->rows[0].verdict.checked_bytes, check ? 600'000u : 0u);
    }
}

TEST_F(WholeTest, AllSizesAndSmallestDepth) {
  Options options = options_for("send_bw", 3);
  options.size_bytes.reset();
  options.all_sizes = true;
  options.tx_depth = 1;
  run(options);
  ASSERT_TRUE(ends_.client) << ends_.client.error().message;
  ASSERT_EQ(ends_.client->rows.size(), 23u);
  EXPECT_EQ(ends_.client->rows[22].bytes, 1u << 23);
  EXPECT_EQ(ends_.client_saw.rows.size(), 23u);
}

TEST_F(WholeTest, OneByte) {
  for (const perf::Test& test : all_tests()) {
    Options options = options_for(test.name.data(), 20);
    options.size_bytes = 1;
    options.check = true;
    run(options);
    expect_success(20);
  }
}

TEST_F(WholeTest, ATimeInsteadOfANumber) {
  for (const perf::Test& test : all_tests())
    for (const bool check : {false, true}) {
      SCOPED_TRACE(test.name);
      Options options = options_for(test.name.data());
      options.iterations.reset();
      options.duration_s = 0.02;
      options.check = check;
      options.queue_pairs = test.latency ? 1 : 2;
      run(options);
      ASSERT_TRUE(ends_.client) << ends_.client.error().message;
      ASSERT_TRUE(ends_.server) << ends_.server.error().message;
      EXPECT_GT(ends_.client->rows[0].iterations, 0u);
      EXPECT_EQ(ends_.client->rows[0].verdict.wrong_bytes, 0u);
    }
}

TEST_F(WholeTest, CorruptionIsFound) {
  for (const perf::Test& test : all_tests()) {
    SCOPED_TRACE(test.name);
    Options options = options_for(test.name.data(), 50);
    options.check = true;
    ends_.client_saw.on_agreed = [&] {
      for (const verbs::FakeQueuePair& qp : provider_->queue_pairs()) provider_->corrupt_next(qp.qpn);
    };
    run(options);
    ASSERT_TRUE(ends_.client) << ends_.client.error().message;
    const Verdict& verdict = ends_.client->rows[0].verdict;
    EXPECT_GE(verdict.wrong_bytes, 1u);
    EXPECT_NE(verdict.first.find("iteration 0, queue pair 0, offset 500"), std::string::npos)
        << verdict.first;
  }
}

TEST_F(WholeTest, TheSmallerMtuIsAgreed) {
  Options client = options_for("write_bw"), server = client;
  client.mtu_bytes = 512;
  run(client, server);
  ASSERT_TRUE(ends_.client);
  EXPECT_EQ(ends_.client_saw.seen->mtu_bytes, 512u);
  EXPECT_EQ(ends_.server_saw.seen->mtu_bytes, 512u);
  EXPECT_EQ(ends_.server_saw.seen->local_mtu_bytes, 4096u);
}

TEST_F(WholeTest, TheServerAdoptsTheClientsWish) {
  Options client = options_for("write_bw", 77), server = options_for("write_bw", 5);
  client.size_bytes = 123;
  run(client, server);
  ASSERT_TRUE(ends_.server);
  EXPECT_EQ(ends_.server->rows[0].bytes, 123u);
  EXPECT_EQ(ends_.server->rows[0].iterations, 77u);
}

TEST_F(WholeTest, DifferentTestsAreRefusedOnBothEnds) {
  run(options_for("write_bw"), options_for("read_bw"));
  ASSERT_FALSE(ends_.client);
  ASSERT_FALSE(ends_.server);
  for (const auto* end : {&ends_.client, &ends_.server}) {
    EXPECT_NE(end->error().message.find("read_bw"), std::string::npos) << end->error().message;
    EXPECT_NE(end->error().message.find("write_bw"), std::string::npos) << end->error().message;
  }
}

TEST_F(WholeTest, AFailedQueuePairEndsBothEndsWithTheCause) {
  for (const char* test : {"write_bw", "send_bw", "read_bw", "write_lat", "send_lat", "read_lat"}) {
    SCOPED_TRACE(test);
    Options options = options_for(test, 1'000'000);
    options.iterations.reset();
    options.duration_s = 30;
    ends_.client_saw.on_agreed = [&] {
      const std::uint32_t first = provider_->queue_pairs().front().qpn;
      provider_->set_reachable(first, false);
    };
    run(options);
    ASSERT_FALSE(ends_.client);
    ASSERT_FALSE(ends_.server);
    EXPECT_NE((ends_.client.error().message + ends_.server.error().message).find("retry exceeded (12)"),
              std::string::npos)
        << ends_.client.error().message << " / " << ends_.server.error().message;
  }
}

// A client that says hello and is gone.
TEST_F(WholeTest, AServerOutlivesNobody) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const Options options = options_for("write_bw");
  {
    Channel client(Descriptor{fds[0]}, "the server");
    ASSERT_TRUE(client.send(encode(Hello{make_plan(options).value()})));
  }
  Channel channel(Descriptor{fds[1]}, "the client");
  auto device = open_device(*provider_, options);
  Recorder recorder;
  const auto report = run_server(options, *device, channel, recorder);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::peer_lost) << report.error().message;
}

TEST_F(WholeTest, ARoundThatWasNotAgreedIsRefused) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const Options options = options_for("write_bw");
  std::thread hostile([&, fd = fds[0]] {
    Channel channel(Descriptor{fd}, "the server");
    auto device = open_device(*provider_, options);
    const Plan plan = make_plan(options).value();
    ASSERT_TRUE(channel.send(encode(Hello{plan})));
    ASSERT_TRUE(channel.receive(MessageType::hello, 5s));
    auto end = Endpoint::create(*device, plan).value();
    ASSERT_TRUE(channel.send(encode(end->info())));
    ASSERT_TRUE(end->connect(decode_endpoint(channel.receive(MessageType::endpoint, 5s).value()).value()));
    ASSERT_TRUE(channel.send(encode(Ready{false})));
    ASSERT_TRUE(channel.receive(MessageType::ready, 5s));
    ASSERT_TRUE(channel.send(encode(Round{plan.size_bytes + 1, 0, 1, {}})));
    EXPECT_NE(channel.receive_any(5s).error().message.find("not agreed"), std::string::npos);
  });
  Channel channel(Descriptor{fds[1]}, "the client");
  auto device = open_device(*provider_, options);
  Recorder recorder;
  const auto report = run_server(options, *device, channel, recorder);
  hostile.join();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::protocol) << report.error().message;
}

TEST(OpenDevice, BadChoicesAreOneSentence) {
  const auto provider = verbs::make_fake_provider();
  Options options;
  options.device = "mlx5_0";
  EXPECT_NE(open_device(*provider, options).error().message.find("no RDMA device mlx5_0"), std::string::npos);
  options = {};
  options.port = 2;
  EXPECT_NE(open_device(*provider, options).error().message.find("-i 2: fake0 has one port only"),
            std::string::npos);
  options.port = 300;
  EXPECT_FALSE(open_device(*provider, options));
  options = {};
  options.gid_index = 9;
  EXPECT_NE(open_device(*provider, options).error().message.find("index 9"), std::string::npos);
  options = {};
  options.mtu_bytes = 1000;
  EXPECT_NE(open_device(*provider, options).error().message.find("-m 1000"), std::string::npos);
}

}  // namespace
}  // namespace beeline::perf
