// When something is wrong, every rank learns what, and who: different calls, dead and late
// peers, aborts, broken connections.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <array>
#include <atomic>
#include <sstream>

#include "base/log.h"
#include "exec/limits.h"
#include "exec/test_group.h"

namespace beeline::exec {
namespace {

using coll::Operation;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TestGroup;

// Memory for any call of a group of up to 8 ranks.
struct Buffers {
  std::array<float, std::size_t{8} * 64> send{}, receive{};
  Call call(Operation operation, std::size_t count = 16, DType dtype = DType::float32,
            RedOp redop = RedOp::sum, int root = 0) {
    return {operation, send.data(), receive.data(), count, dtype, redop, Rank{root}};
  }
};

// Runs one call per rank, all together; what each got.
std::vector<Result<void>> run_all(TestGroup& group, const std::function<Call(int, Buffers&)>& call_of) {
  std::vector<Buffers> buffers(static_cast<std::size_t>(group.size()));
  std::vector<Result<void>> results(buffers.size());
  group.on_all_ranks([&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    results[i] = testing::run(group[rank], call_of(rank, buffers[i]));
  });
  return results;
}

void expect_error(const Result<void>& result, Errc code, const ::testing::Matcher<std::string>& text) {
  ASSERT_FALSE(result);
  EXPECT_EQ(name(result.error().code), name(code)) << result.error().message;
  EXPECT_THAT(result.error().message, text);
}

// ---- different calls

struct Difference {
  const char* what;
  std::function<Call(Buffers&)> usual, odd;
  const char *usual_text, *odd_text;
};

const std::vector<Difference>& differences() {
  static const std::vector<Difference> all = {
      {"count", [](Buffers& b) { return b.call(Operation::all_reduce, 16); },
       [](Buffers& b) { return b.call(Operation::all_reduce, 17); }, "all_reduce(sum, float32, 16 elements)",
       "all_reduce(sum, float32, 17 elements)"},
      {"zero count", [](Buffers& b) { return b.call(Operation::all_gather, 0); },
       [](Buffers& b) { return b.call(Operation::all_gather, 1); }, "all_gather(float32, 0 elements)",
       "all_gather(float32, 1 element)"},
      {"dtype", [](Buffers& b) { return b.call(Operation::all_reduce, 16, DType::float32); },
       [](Buffers& b) { return b.call(Operation::all_reduce, 16, DType::int32); },
       "all_reduce(sum, float32, 16 elements)", "all_reduce(sum, int32, 16 elements)"},
      {"redop", [](Buffers& b) { return b.call(Operation::reduce_scatter, 4); },
       [](Buffers& b) { return b.call(Operation::reduce_scatter, 4, DType::float32, RedOp::max); },
       "reduce_scatter(sum, float32, 4 elements)", "reduce_scatter(max, float32, 4 elements)"},
      {"root", [](Buffers& b) { return b.call(Operation::broadcast, 4, DType::uint8, RedOp::sum, 0); },
       [](Buffers& b) { return b.call(Operation::broadcast, 4, DType::uint8, RedOp::sum, 1); },
       "broadcast(uint8, 4 elements, root 0)", "broadcast(uint8, 4 elements, root 1)"},
      {"operation", [](Buffers& b) { return b.call(Operation::all_reduce, 16); },
       [](Buffers& b) { return b.call(Operation::barrier); }, "all_reduce(sum, float32, 16 elements)",
       "barrier()"},
  };
  return all;
}

class Mismatch : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Mismatch, ::testing::Values(2, 3, 4, 5));

TEST_P(Mismatch, EveryFieldIsAnErrorOnEveryRankThatNamesBoth) {
  for (const Difference& difference : differences()) {
    SCOPED_TRACE(difference.what);
    const auto provider = verbs::make_fake_provider();
    TestGroup group(*provider, GetParam());
    ASSERT_TRUE(group.connect());
    for (const auto& good : run_all(group, [](int, Buffers& b) { return b.call(Operation::all_reduce); }))
      ASSERT_TRUE(good) << good.error().message;
    auto results = run_all(
        group, [&](int rank, Buffers& b) { return rank == 1 ? difference.odd(b) : difference.usual(b); });
    for (int rank = 0; rank < GetParam(); ++rank) {
      expect_error(results[static_cast<std::size_t>(rank)], Errc::mismatch,
                   AllOf(HasSubstr("rank 1 called"), HasSubstr("as its call 2, but rank"),
                         HasSubstr(difference.usual_text), HasSubstr(difference.odd_text)));
    }
  }
}

TEST(Mismatch, TwoRanksReadTheSameText) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  ASSERT_TRUE(group.connect());
  const auto results =
      run_all(group, [](int rank, Buffers& b) { return b.call(Operation::all_reduce, rank == 0 ? 10 : 9); });
  for (const auto& result : results)
    expect_error(
        result, Errc::mismatch,
        HasSubstr("rank 0 called all_reduce(sum, float32, 10 elements) as its call 1, but rank 1 called "
                  "all_reduce(sum, float32, 9 elements): all ranks must make the same calls"));
}

TEST(Mismatch, OrderOfCallsIsNoticed) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  ASSERT_TRUE(group.connect());
  std::array<Buffers, 4> buffers;
  auto next = buffers.begin();
  std::vector<Result<std::shared_ptr<Work>>> works;
  for (int rank = 0; rank < 2; ++rank)
    for (int i = 0; i < 2; ++i)
      works.push_back(
          group[rank].submit((next++)->call(i == rank ? Operation::all_reduce : Operation::all_gather)));
  for (const auto& work : works) {  // it may be noticed before the last of them is submitted
    const Result<void> result = work ? (*work)->wait(60s) : tl::unexpected<Error>(work.error());
    expect_error(result, Errc::mismatch, HasSubstr("rank 0 called all_reduce"));
  }
}

TEST(Mismatch, LaterCallsNameTheCallThatFailed) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  ASSERT_TRUE(group.connect());
  const auto results = run_all(group, [](int rank, Buffers& b) {
    return b.call(rank == 0 ? Operation::all_reduce : Operation::all_gather);
  });
  const auto later = group[0].submit({});
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().message, "this group failed before, in call 1: " + results[0].error().message);
  EXPECT_EQ(later.error().code, Errc::mismatch);
}

// ---- peers

class Death : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Death, ::testing::Values(2, 3, 5));

TEST_P(Death, IsNamedOnEveryOtherRank) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, GetParam());
  ASSERT_TRUE(group.connect());
  const int victim = GetParam() - 1;
  std::vector<Buffers> buffers(static_cast<std::size_t>(GetParam()));
  group.on_all_ranks([&](int rank) {
    if (rank == victim) {
      std::this_thread::sleep_for(20ms);
      group.hub().kill(victim);
      return;
    }
    auto& mine = buffers[static_cast<std::size_t>(rank)];
    const auto result = testing::run(group[rank], mine.call(Operation::all_reduce));
    expect_error(result, Errc::peer_lost,
                 AllOf(HasSubstr(group.control(0).describe(Rank{victim}) + " is gone"),
                       HasSubstr("was in call 1, all_reduce(sum, float32, 16 elements)")));
  });
}

TEST(Death, BetweenCallsFailsTheNextOne) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  ASSERT_TRUE(group.connect());
  group.hub().kill(1);
  const auto result = testing::run(group[0], {});
  expect_error(result, Errc::peer_lost, HasSubstr("rank 1"));
}

TEST(Departure, OfARankThatOthersStillNeedIsAnError) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 3);
  ASSERT_TRUE(group.connect());
  for (const auto& result : run_all(group, [](int, Buffers& b) { return b.call(Operation::all_reduce); }))
    ASSERT_TRUE(result);
  group.on_all_ranks([&](int rank) {
    if (rank == 1) return group.leave(1);
    expect_error(testing::run(group[rank], {}), Errc::peer_lost,
                 HasSubstr("rank 1 (pid 1001 on test) left the group after 1 calls"));
  });
}

TEST(Departure, IsNoErrorWhenAllHaveFinished) {
  const auto provider = verbs::make_fake_provider(
      {.devices = {verbs::FakeDevice{}}, .delivery = verbs::FakeOptions::Delivery::threaded});
  for (int round = 0; round < 10; ++round) {
    TestGroup group(*provider, 3);
    ASSERT_TRUE(group.connect());
    group.on_all_ranks([&](int rank) {
      Buffers buffers;
      for (int i = 0; i < 3; ++i) {
        const auto result = testing::run(group[rank], buffers.call(Operation::all_reduce));
        EXPECT_TRUE(result) << result.error().message;
      }
      group.leave(rank);
    });
  }
}

// Rank 2 does not come. Ranks 1 and 3 are its neighbours and know; rank 0 only knows that they
// wait, too, and must blame rank 2 all the same.
TEST(Lateness, NamesTheRankThatDidNotCome) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 4, [](CommunicatorOptions& options) {
    options.operation_timeout = 300ms;
    options.warn_after = 100ms;
  });
  ASSERT_TRUE(group.connect());
  group.on_all_ranks([&](int rank) {
    if (rank == 2) return;
    Buffers buffers;
    expect_error(testing::run(group[rank], buffers.call(Operation::all_reduce)), Errc::timed_out,
                 AllOf(HasSubstr("rank 2 (pid 1002 on test) has not made this call yet"), HasSubstr("call 1"),
                       HasSubstr("Last events:")));
  });
}

// Collects what is logged while it lives.
class LogCapture {
 public:
  LogCapture() : sink_(std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)), usual_(logger()->sinks()) {
    logger()->sinks() = {sink_};
  }
  ~LogCapture() { logger()->sinks() = usual_; }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_;
  std::vector<spdlog::sink_ptr> usual_;
};

TEST(Lateness, IsWarnedAboutAndForgivenBeforeTheTimeLimit) {
  LogCapture log;
  {
    const auto provider = verbs::make_fake_provider();
    TestGroup group(*provider, 3, [](CommunicatorOptions& options) { options.warn_after = 10ms; });
    ASSERT_TRUE(group.connect());
    group.on_all_ranks([&](int rank) {
      if (rank == 1) std::this_thread::sleep_for(200ms);
      Buffers buffers;
      EXPECT_TRUE(testing::run(group[rank], buffers.call(Operation::all_gather, 4)));
    });
  }
  EXPECT_THAT(log.text(),
              AllOf(HasSubstr("in call 1, all_gather(float32, 4 elements): rank 1 (pid 1001 on test) has "
                              "not made this call yet"),
                    HasSubstr("has been waiting for")));
}

// ---- abort and end

TEST(Abort, EndsAllCallsEverywhereWithItsReason) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 3);
  ASSERT_TRUE(group.connect());
  Buffers buffers[3];
  std::vector<std::shared_ptr<Work>> works;
  for (int rank = 0; rank < 2; ++rank)
    for (int i = 0; i < 3; ++i)
      works.push_back(group[rank].submit(buffers[rank].call(Operation::all_reduce)).value());
  group[2].abort("the loss is NaN");
  for (const auto& work : works)
    expect_error(work->wait(60s), Errc::aborted,
                 HasSubstr("rank 2 (pid 1002 on test) aborted: the loss is NaN"));
}

TEST(Abort, WorksWhenNothingIsUnderWay) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  ASSERT_TRUE(group.connect());
  group[0].abort("enough");
  const auto result = testing::run(group[1], {});
  expect_error(result, Errc::aborted, HasSubstr("enough"));
  expect_error(testing::run(group[0], {}), Errc::aborted,
               AllOf(HasSubstr("this group failed before, before its first call: "), HasSubstr("enough")));
}

TEST(End, OfACommunicatorEndsItsCalls) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  ASSERT_TRUE(group.connect());
  // Larger than a parcel: a small call of rank 0 would be over for rank 1.
  std::vector<std::uint8_t> data(parcel_bytes(2) + 1);
  const Call call{
      .operation = Operation::all_reduce, .send = data.data(), .receive = data.data(), .count = data.size()};
  const auto first = group[0].submit(call).value(), second = group[0].submit(call).value();
  group.leave(0);
  for (const auto& work : {first, second}) expect_error(work->wait(60s), Errc::aborted, HasSubstr("rank 0"));
  auto other = data;
  Call theirs = call;
  theirs.send = theirs.receive = other.data();
  expect_error(testing::run(group[1], theirs), Errc::aborted, HasSubstr("ended its communicator"));
}

// ---- when the error comes, nothing may touch the caller's memory any more

TEST(Error, ComesAfterTheQueuePairsAreBroken) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 3);
  ASSERT_TRUE(group.connect());
  Buffers buffers;
  std::atomic<int> broken{-1};
  const auto work = group[0].submit(buffers.call(Operation::all_reduce)).value();
  work->on_done([&](const Result<void>& result) {
    int count = 0;
    for (const auto& qp : provider->queue_pairs())
      count += qp.context == group.context(0) && qp.state == IBV_QPS_ERR && !result;
    broken = count;
  });
  group[1].abort("test");
  EXPECT_FALSE(work->wait(60s));
  for (int patience = 0; broken < 0 && patience < 60000; ++patience) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(broken, 2);
}

// ---- broken connections

std::uint32_t queue_pair_of(const verbs::FakeProvider& provider, const ibv_context* context) {
  for (const auto& qp : provider.queue_pairs())
    if (qp.context == context) return qp.qpn;
  return 0;
}

// Rank 1 calls nothing before the error is there: its own connection is no news.
TEST(BrokenConnection, IsAnErrorOnEveryRank) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  ASSERT_TRUE(group.connect());
  provider->fail_next(queue_pair_of(*provider, group.context(0)), IBV_WC_REM_ACCESS_ERR);
  const auto text =
      AllOf(HasSubstr("the connection from rank 0 to rank 1 broke"), HasSubstr("remote access error"));
  expect_error(testing::run(group[0], {}), Errc::io, text);
  expect_error(testing::run(group[1], {}), Errc::io, text);
}

TEST(BrokenConnection, IsExplainedByTheDeathThatCausedIt) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  ASSERT_TRUE(group.connect());
  const auto work = group[0].submit({}).value();
  provider->kill(queue_pair_of(*provider, group.context(0)));
  group.hub().kill(1);
  expect_error(work->wait(60s), Errc::peer_lost, HasSubstr("its control connection closed"));
}

TEST(BrokenPath, IsFoundAtCreationAndNamesBothGids) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  provider->set_paused(true);
  std::thread saboteur([&] {  // between connecting and probing
    const auto connected = [&] {
      const auto qps = provider->queue_pairs();
      return qps.size() == 2 && qps[0].state == IBV_QPS_RTS && qps[1].state == IBV_QPS_RTS;
    };
    while (!connected()) std::this_thread::sleep_for(100us);
    provider->set_reachable(provider->queue_pairs().front().qpn, false);
    provider->set_paused(false);
  });
  EXPECT_FALSE(group.connect());
  saboteur.join();
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(group.error(rank).message, AllOf(HasSubstr("GID 10.99.0.1 -> 10.99.0.1"), HasSubstr("4791")));
}

TEST(Creation, RanksThatWereStartedDifferentlyAreToldSo) {
  const auto provider = verbs::make_fake_provider();
  for (const bool name_differs : {false, true}) {
    TestGroup group(*provider, 2, [&](CommunicatorOptions& options) {
      if (options.rank != Rank{1}) return;
      if (name_differs)
        options.name = "other";
      else
        options.piece_bytes = 4096;
    });
    EXPECT_FALSE(group.connect());
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(group.error(rank).code, Errc::mismatch);
      EXPECT_THAT(group.error(rank).message, HasSubstr("start all ranks alike"));
    }
  }
}

TEST(Creation, ARankThatNeverComesIsATimeout) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2, [](CommunicatorOptions& options) { options.connect_timeout = 50ms; });
  const auto created =
      Communicator::create(group.options(0), *provider, group.context(0), group.gid(0), group.control(0));
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().code, Errc::timed_out);
}

TEST(Creation, RefusesNonsense) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 1);
  const auto code = [&](const CommunicatorOptions& options) {
    const auto created =
        Communicator::create(options, *provider, group.context(0), group.gid(0), group.control(0));
    return created ? Errc::internal : created.error().code;
  };
  EXPECT_EQ(code({.rank = Rank{0}, .size = 0}), Errc::invalid_argument);
  EXPECT_EQ(code({.rank = Rank{1}, .size = 1}), Errc::invalid_argument);
  EXPECT_EQ(code({.rank = Rank{-1}, .size = 1}), Errc::invalid_argument);
}

// ---- wrong arguments

TEST(Arguments, AreRefusedBeforeAnythingHappens) {
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  ASSERT_TRUE(group.connect());
  Buffers b;
  const auto message = [&](const Call& call) {
    const auto work = group[0].submit(call);
    return work ? std::string("accepted") : work.error().message;
  };
  Call call = b.call(Operation::all_reduce);
  call.send = nullptr;
  EXPECT_THAT(message(call), HasSubstr("the send buffer is null"));
  call = b.call(Operation::all_reduce);
  call.receive = nullptr;
  EXPECT_THAT(message(call), HasSubstr("the receive buffer is null"));
  call = b.call(Operation::all_reduce);
  call.receive = b.send.data() + 1;
  EXPECT_THAT(message(call), HasSubstr("overlap"));
  call = b.call(Operation::all_reduce, SIZE_MAX / 4);
  EXPECT_THAT(message(call), HasSubstr("no machine has that much memory"));
  EXPECT_THAT(message(b.call(Operation::broadcast, 1, DType::uint8, RedOp::sum, 2)),
              HasSubstr("ranks 0 to 1"));
  EXPECT_THAT(message(b.call(Operation::all_reduce, 1, static_cast<DType>(9))), HasSubstr("no such dtype"));
  EXPECT_THAT(message(b.call(Operation::all_reduce, 1, DType::uint8, static_cast<RedOp>(9))),
              HasSubstr("no such reduction"));
  EXPECT_THAT(message(b.call(static_cast<Operation>(9))), HasSubstr("no such operation"));
  // The communicator is as good as before.
  for (const auto& result :
       run_all(group, [](int, Buffers& mine) { return mine.call(Operation::all_reduce); }))
    EXPECT_TRUE(result);
}

TEST(TooLargeAGroup, IsRefusedWithTheDevicesLimit) {
  const int entries_per_peer = static_cast<int>(receive_depth + send_depth);
  const auto provider = verbs::make_fake_provider({.max_cqe = 2 * entries_per_peer});
  {
    TestGroup fits(*provider, 3);
    EXPECT_TRUE(fits.connect()) << fits.error(0).message;
  }
  TestGroup group(*provider, 4);
  EXPECT_FALSE(group.connect());
  for (int rank = 0; rank < group.size(); ++rank) {
    EXPECT_EQ(group.error(rank).code, Errc::resource_exhausted);
    EXPECT_THAT(group.error(rank).message, HasSubstr("4 ranks is too large for device fake0"));
    EXPECT_THAT(group.error(rank).message, HasSubstr("enough for 3 ranks"));
  }
}

}  // namespace
}  // namespace beeline::exec
