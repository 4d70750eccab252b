// beeline perf: bandwidth and latency, as perftest users know them.
#include <cstdio>

#include "base/log.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/engine.h"
#include "cli/json_file.h"
#include "cli/loopback.h"
#include "cli/perf_output.h"
#include "perf/json.h"
#include "perf/run.h"

namespace beeline::cli {
namespace {

constexpr Duration connect_timeout = 10s;

// As typed.
struct PerfArguments {
  perf::Options options;
  std::string size;  // may have a unit
  std::string host;  // empty: this end is the server
  std::uint16_t tcp_port = perf::default_tcp_port;
  bool loopback = false;
  bool report_gbits = false;
  bool rdma_cm = false;  // an option of perftest that people type out of habit
  std::string json_path;
  std::optional<int> control_fd;  // this end is the server that --loopback started
};

template <class T>
T value_or_give_up(Result<T> result) {
  if (!result) give_up(result.error());
  return std::move(*result);
}

// The command line of the server process: what concerns the device. The rest is the
// client's to say.
std::vector<std::string> server_words(const PerfArguments& typed) {
  const perf::Options& options = typed.options;
  std::vector<std::string> words = {"perf", std::string(options.test->name), "-i",
                                    std::to_string(options.port)};
  if (!options.device.empty()) words.insert(words.end(), {"-d", options.device});
  if (options.gid_index) words.insert(words.end(), {"-x", std::to_string(*options.gid_index)});
  return words;
}

perf::Report run_loopback(const PerfArguments& typed, perf::OpenDevice& device) {
  auto server = value_or_give_up(LoopbackServer::start(server_words(typed)));
  PerfOutput output(typed.report_gbits);
  auto report = perf::run_client(typed.options, device, server.channel(), output);
  const std::string death = server.end();
  if (!death.empty()) give_up({Errc::peer_lost, "the server process " + death});
  return value_or_give_up(std::move(report));
}

perf::Report run_as_client(const PerfArguments& typed, perf::OpenDevice& device) {
  auto channel = value_or_give_up(perf::connect_to(typed.host, typed.tcp_port, connect_timeout));
  PerfOutput output(typed.report_gbits);
  return value_or_give_up(perf::run_client(typed.options, device, channel, output));
}

// Waits for a client that speaks our language: a port scanner does not end the server.
perf::Report run_as_server(const PerfArguments& typed, perf::OpenDevice& device) {
  auto listener = value_or_give_up(perf::Listener::open(typed.tcp_port));
  std::printf(
      "\n************************************\n* Waiting for client to connect... *\n"
      "************************************\n");
  std::fflush(stdout);
  for (;;) {
    auto channel = value_or_give_up(listener.accept());
    PerfOutput output(typed.report_gbits);
    bool spoke = false;
    auto report = perf::run_server(typed.options, device, channel, output, &spoke);
    if (report || spoke) return value_or_give_up(std::move(report));
    std::fprintf(stderr, "beeline: ignored a connection from %s: %s\n", channel.peer().c_str(),
                 report.error().message.c_str());
  }
}

// The server of --loopback tells its errors to the client, which prints them.
void run_controlled(const PerfArguments& typed) {
  if (!is_channel_to_client(*typed.control_fd))
    give_up({Errc::invalid_argument, "--control-fd is for the server that --loopback starts; leave it out"});
  perf::Channel channel(Descriptor(*typed.control_fd), "the client process");
  auto engine = open_engine();
  const auto tell = [&](const Error& error) {
    channel.send_failure(error);
    throw CLI::RuntimeError(1);
  };
  if (!engine) tell(engine.error());
  auto device = perf::open_device(*engine->provider, typed.options);
  if (!device) tell(device.error());
  SilentOutput output;
  if (!perf::run_server(typed.options, *device, channel, output)) throw CLI::RuntimeError(1);
}

void check_verdict(const perf::Report& report) {
  perf::Verdict total;
  for (const perf::Row& row : report.rows) {
    total.checked_bytes += row.verdict.checked_bytes;
    total.wrong_bytes += row.verdict.wrong_bytes;
    if (total.first.empty()) total.first = row.verdict.first;
  }
  if (total.wrong_bytes > 0)
    give_up({Errc::io, fmt::format("{} of {} checked bytes are wrong, the first at {}", total.wrong_bytes,
                                   total.checked_bytes, total.first)});
}

// Which lane of the card in software carried the messages; empty: other hardware did.
std::string lane_of(const Engine& engine) {
  if (engine.card == nullptr) return {};
  const nic::CardCounters counters = engine.card->counters();
  const bool local = counters.local_payload_sent + counters.local_payload_received != 0;
  const bool wire = counters.wire_payload_sent + counters.wire_payload_received != 0;
  return local && wire ? "both" : local ? "local" : wire ? "wire" : "";
}

void run(PerfArguments& typed) {
  if (typed.rdma_cm)
    give_up({Errc::invalid_argument,
             "-R: that is how perftest connects over rdma_cm; beeline perf exchanges the addresses over TCP "
             "by itself, on both ends: leave -R out"});
  if (!typed.size.empty()) typed.options.size_bytes = value_or_give_up(perf::parse_size(typed.size));
  if (typed.control_fd) return run_controlled(typed);
  if (typed.loopback && !typed.host.empty())
    give_up({Errc::invalid_argument, "--loopback starts its own server: give no host with it"});
  value_or_give_up(perf::make_plan(typed.options));
  if (!typed.json_path.empty())
    if (const auto writable = probe_file(typed.json_path); !writable) give_up(writable.error());
  auto engine = value_or_give_up(open_engine());
  if (typed.options.device.empty()) typed.options.device = engine.config.device;
  if (!typed.options.gid_index) typed.options.gid_index = engine.config.gid_index;
  auto device = value_or_give_up(perf::open_device(*engine.provider, typed.options));
  perf::Report report = typed.loopback       ? run_loopback(typed, device)
                        : typed.host.empty() ? run_as_server(typed, device)
                                             : run_as_client(typed, device);
  report.lane = lane_of(engine);
  if (!report.lane.empty()) std::printf(" Lane            : %s\n", report.lane.c_str());
  if (!typed.json_path.empty())
    if (const auto written = write_file(typed.json_path, perf::to_json(report)); !written)
      give_up(written.error());
  check_verdict(report);
}

std::string examples(std::string_view test) {
  return fmt::format(
      "Examples:\n"
      "  beeline perf {0} --loopback           two processes on this host\n"
      "  beeline perf {0} -d bee0              on one host, the server\n"
      "  beeline perf {0} -d bee0 SERVER       on another, the client: it says what is done\n"
      "  beeline perf {0} --loopback --check   verifies every byte\n",
      test);
}

void add_options(CLI::App& command, PerfArguments& typed) {
  perf::Options& options = typed.options;
  command.add_option("host", typed.host, "The server to connect to; without it this end is the server")
      ->check(not_empty());
  command.add_flag("--loopback", typed.loopback, "Start the server too, as a second process on this host");
  command
      .add_option("-d,--ib-dev", options.device,
                  "Device (default: BEELINE_DEVICE, or the first one that is up and has an address)")
      ->check(not_empty());
  command
      .add_option("-x,--gid-index", options.gid_index,
                  "GID index (default: BEELINE_GID_INDEX, or the best address)")
      ->check(between(0, 255));
  command.add_option("-i,--ib-port", options.port, "Port of the device")
      ->check(between(1, 255))
      ->capture_default_str();
  command.add_option("-m,--mtu", options.mtu_bytes, "Path MTU (default: the largest that both ends have)")
      ->check(between(256, 4096));
  command.add_option("-s,--size", typed.size,
                     "Message size in bytes, or as 64K, 8M (default: 65536, or 2 for latency)");
  command.add_flag("-a,--all", options.all_sizes, "Sizes 2, 4, 8 ... 2^23");
  command
      .add_option("-n,--iters", options.iterations,
                  "Messages per queue pair (default: 5000, or 1000 for latency)")
      ->check(between<std::uint64_t>(1, perf::max_iterations));
  command.add_option("-D,--duration", options.duration_s, "Seconds to run for, instead of -n")
      ->check(between(0.0, perf::max_duration_s));
  command.add_option("-q,--qp", options.queue_pairs, "Queue pairs")
      ->check(between(1u, perf::max_queue_pairs))
      ->capture_default_str();
  command.add_option("-t,--tx-depth", options.tx_depth, "Messages under way per queue pair")
      ->check(between(1u, perf::max_tx_depth))
      ->capture_default_str();
  command.add_flag("-b,--bidirectional", options.bidirectional, "Both ends send");
  command.add_option("-p,--port", typed.tcp_port, "TCP port on which the ends agree")
      ->check(between(1, 65535))
      ->capture_default_str();
  command.add_flag("--check", options.check, "Verify every byte of every message");
  command.add_flag("--report_gbits", typed.report_gbits, "Gb/sec instead of MiB/sec");
  command.add_option("--json", typed.json_path, "Also write the result to this file")->check(not_empty());
  command.add_flag("-R,--rdma_cm", typed.rdma_cm)->group("");
  command.add_option("--control-fd", typed.control_fd)->group("");  // not for users
}

}  // namespace

void add_perf(CLI::App& app) {
  auto* command = app.add_subcommand("perf", "Measure bandwidth and latency of RDMA operations");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  beeline perf write_bw --loopback\n"
      "  beeline perf send_lat --loopback -s 64 -n 10000\n"
      "  beeline perf write_bw -a HOST --json result.json     (the server: beeline perf write_bw)\n");
  for (const perf::Test& test : perf::all_tests()) {
    auto* one = command->add_subcommand(std::string(test.name), std::string(test.help));
    auto typed = std::make_shared<PerfArguments>();
    typed->options.test = &test;
    add_options(*one, *typed);
    one->footer(examples(test.name));
    one->callback([typed] { run(*typed); });
  }
}

}  // namespace beeline::cli
