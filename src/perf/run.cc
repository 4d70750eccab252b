#include "perf/run.h"

#include <algorithm>

#include "perf/bandwidth.h"
#include "perf/checking.h"
#include "perf/latency.h"
#include "perf/watch.h"

namespace beeline::perf {
namespace {

constexpr Duration handshake_timeout = 20s;
// A client says hello at once. Whoever connects and says nothing (a port scanner) must not keep others
// waiting.
constexpr Duration hello_timeout = 2s;

// What one end has while a test runs.
struct Session {
  Channel& channel;
  Observer& observer;
  Endpoint& end;
  Agreement agreement;
  Roles roles;
};

// What one round brought to one end.
struct Outcome {
  Finished mine, peers;
  double peak_bytes_per_s = 0;
  LatencyHistogram histogram;
  Verdict verdict;
};

Agreement agree(const Endpoint& end, bool is_server, bool peer_in_order) {
  const OpenDevice& device = end.device();
  Agreement agreement;
  agreement.plan = end.plan();
  agreement.is_server = is_server;
  agreement.provider = device.provider->provider_name(device.context->device);
  agreement.device = device.name;
  agreement.ethernet = device.ethernet;
  agreement.gid_index = device.gid.index;
  agreement.mtu_bytes = end.mtu_bytes();
  agreement.local_mtu_bytes = device.mtu_bytes;
  agreement.remote_mtu_bytes = end.peer().mtu_bytes;
  agreement.inline_bytes = end.inline_bytes();
  agreement.reads = std::min(device.initiator_reads, end.peer().reads);
  const bool in_order = peer_in_order && end.data_in_order();
  agreement.arrival = in_order ? Agreement::Arrival::memory : Agreement::Arrival::completion;
  agreement.local = end.info();
  agreement.remote = end.peer();
  return agreement;
}

// Both ends: numbers across, queue pairs to RTS, and nobody sends before both are there.
Result<Agreement> connect_ends(Endpoint& end, Channel& channel, bool is_server) {
  if (!is_server) BEELINE_TRY_VOID(channel.send(encode(end.info())));
  BEELINE_TRY(const auto described, channel.receive(MessageType::endpoint, handshake_timeout));
  BEELINE_TRY(const auto peer, decode_endpoint(described));
  if (is_server) {  // whose choice of address follows the client's
    end.match(peer);
    BEELINE_TRY_VOID(channel.send(encode(end.info())));
  }
  BEELINE_TRY_VOID(end.connect(peer));
  BEELINE_TRY_VOID(channel.send(encode(Ready{end.data_in_order()})));
  BEELINE_TRY(const auto message, channel.receive(MessageType::ready, handshake_timeout));
  BEELINE_TRY(const auto ready, decode_ready(message));
  return agree(end, is_server, ready.data_in_order);
}

// The end that only lets the peer read and write has no completion that would order its own
// accesses with the card's: polling once does. Nothing can be there but a failure.
Result<void> order_with_card(const Endpoint& end) {
  ibv_wc wc{};
  const int got = ibv_poll_cq(end.cq(), 1, &wc);
  if (got != 0)
    return tl::unexpected(end.failed(0, "the card's work", got < 0 ? IBV_WC_GENERAL_ERR : wc.status));
  return {};
}

// Both ends are prepared: the client names the round, the server lets it begin.
Result<void> announce_start(Session& session, const Round& round, bool is_server) {
  if (is_server) return session.channel.send(empty_message(MessageType::start));
  BEELINE_TRY_VOID(session.channel.send(encode(round)));
  BEELINE_TRY_VOID(session.channel.receive(MessageType::start, step_timeout));
  return {};
}

Result<Outcome> bandwidth_round(Session& session, const Round& round, bool is_server) {
  const Plan& plan = session.end.plan();
  const bool receives = plan.test->operation == Operation::send && session.roles.sink;
  BandwidthRound part(session.end, round, session.roles.initiates, receives);
  if (plan.check) {
    fill_round(session.end, round, session.roles);
    BEELINE_TRY_VOID(order_with_card(session.end));
  }
  BEELINE_TRY_VOID(part.prepare());
  BEELINE_TRY_VOID(announce_start(session, round, is_server));
  Watch watch(session.channel, is_server ? nullptr : &session.observer, round.size_bytes);
  BEELINE_TRY_VOID(part.run(session.channel, watch));
  Outcome outcome;
  BEELINE_TRY(outcome.peers, watch.wait_finished());
  outcome.mine = part.finished();
  outcome.peak_bytes_per_s = part.peak_bytes_per_s();
  if (plan.check) {
    BEELINE_TRY_VOID(order_with_card(session.end));
    outcome.verdict = verify_round(session.end, round, session.roles);
  }
  return outcome;
}

Result<Outcome> latency_round(Session& session, const Round& round, bool is_server) {
  LatencyRound part(session.end, round, is_server, session.agreement.arrival);
  BEELINE_TRY_VOID(part.prepare());
  BEELINE_TRY_VOID(announce_start(session, round, is_server));
  Watch watch(session.channel, is_server ? nullptr : &session.observer, round.size_bytes);
  BEELINE_TRY_VOID(part.run(session.channel, watch));
  if (is_server) BEELINE_TRY_VOID(watch.wait_finished());
  Outcome outcome;
  outcome.mine.messages = part.messages();
  outcome.histogram = part.take_histogram();
  outcome.verdict = part.verdict();
  return outcome;
}

Result<Outcome> run_round(Session& session, const Round& round, bool is_server) {
  return session.end.plan().test->latency ? latency_round(session, round, is_server)
                                          : bandwidth_round(session, round, is_server);
}

// Client.

class RowSum {
 public:
  RowSum(const Plan& plan, std::uint64_t bytes) : plan_(plan) { row_.bytes = bytes; }

  void add_outcome(const Outcome& outcome) {
    row_.iterations += outcome.mine.messages + outcome.peers.messages;
    elapsed_ns_ += outcome.mine.elapsed_ns;
    mine_ += outcome.mine.messages;
    peers_ += outcome.peers.messages;
    peers_elapsed_ns_ += outcome.peers.elapsed_ns;
    peak_ = std::max(peak_, outcome.peak_bytes_per_s);
    add(row_.verdict, outcome.verdict);
  }
  std::int64_t elapsed_ns() const { return elapsed_ns_; }

  Row finish(const Outcome& last) {
    if (plan_.test->latency) {
      // A ping-pong is two messages; a READ is there and back by itself.
      row_.latency = last.histogram.summarize(plan_.test->operation == Operation::read ? 1 : 2);
      return row_;
    }
    const double there = rate(mine_, elapsed_ns_), back = rate(peers_, peers_elapsed_ns_);
    BandwidthResult result;
    result.messages_per_s = there + back;
    const double bytes = static_cast<double>(row_.bytes);
    result.average_bytes_per_s = result.messages_per_s * bytes;
    result.peak_bytes_per_s = std::max(result.average_bytes_per_s, peak_ + back * bytes);
    row_.bandwidth = result;
    return row_;
  }
  Row& row() { return row_; }

 private:
  static double rate(std::uint64_t messages, std::int64_t ns) {
    return messages == 0
               ? 0
               : static_cast<double>(messages) * 1e9 / static_cast<double>(std::max<std::int64_t>(ns, 1));
  }
  const Plan& plan_;
  Row row_;
  std::uint64_t mine_ = 0, peers_ = 0;
  std::int64_t elapsed_ns_ = 0, peers_elapsed_ns_ = 0;
  double peak_ = 0;
};

// With --check a bandwidth test runs in rounds of as many messages as there are places,
// so that every byte of every iteration is seen before it is overwritten.
Result<Row> run_size(Session& session, std::uint64_t bytes) {
  const Plan& plan = session.end.plan();
  const bool in_rounds = plan.check && !plan.test->latency;
  RowSum sum(plan, bytes);
  std::uint64_t done = 0;
  for (;;) {
    Round round{bytes, done, plan.iterations, plan.duration};
    if (in_rounds) {
      round.iterations = plan.iterations > 0 ? std::min(plan.slots(), plan.iterations - done) : plan.slots();
      round.duration = {};
    }
    BEELINE_TRY(const auto outcome, run_round(session, round, false));
    sum.add_outcome(outcome);
    done += round.iterations;
    BEELINE_TRY(const auto message, session.channel.receive(MessageType::verdict, step_timeout));
    BEELINE_TRY(const auto verdict, decode_verdict(message));
    add(sum.row().verdict, verdict);
    const bool more = plan.iterations > 0 ? done < plan.iterations : sum.elapsed_ns() < plan.duration.count();
    if (!in_rounds || !more) return sum.finish(outcome);
  }
}

Result<Report> run_sizes(Session& session) {
  Report report;
  report.agreement = session.agreement;
  session.observer.agreed(session.agreement);
  for (const std::uint64_t bytes : session.end.plan().sizes()) {
    BEELINE_TRY(auto row, run_size(session, bytes));
    session.observer.row(row);
    report.rows.push_back(std::move(row));
  }
  BEELINE_TRY_VOID(session.channel.send(empty_message(MessageType::bye)));
  return report;
}

Result<Report> client(const Options& options, OpenDevice& device, Channel& channel, Observer& observer) {
  Hello hello;
  BEELINE_TRY(hello.plan, make_plan(options));
  BEELINE_TRY_VOID(channel.send(encode(hello)));
  BEELINE_TRY(const auto answer, channel.receive(MessageType::hello, handshake_timeout));
  BEELINE_TRY_VOID(decode_hello(answer));
  BEELINE_TRY(const auto end, Endpoint::create(device, hello.plan));
  BEELINE_TRY(auto agreement, connect_ends(*end, channel, false));
  Session session{channel, observer, *end, std::move(agreement), roles_of(hello.plan, false)};
  return run_sizes(session);
}

// Server.

// A peer may ask only for what was agreed.
Result<void> check_round(const Plan& plan, const Round& round) {
  const bool in_rounds = plan.check && !plan.test->latency;
  if (round.size_bytes < 1 || round.size_bytes > plan.size_bytes || round.duration < Duration{} ||
      (in_rounds && (round.iterations < 1 || round.iterations > plan.slots())))
    return fail(Errc::protocol,
                "the client asked for a round of {} messages of {} bytes, which was not agreed",
                round.iterations, round.size_bytes);
  return {};
}

Result<Report> serve(Session& session) {
  Report report;
  report.agreement = session.agreement;
  session.observer.agreed(session.agreement);
  for (;;) {
    BEELINE_TRY(const auto message, session.channel.receive_any(step_timeout));
    if (message.type == MessageType::bye) return report;
    if (message.type != MessageType::round)
      return fail(Errc::protocol, "{} sent message {} between two rounds", session.channel.peer(),
                  static_cast<int>(message.type));
    BEELINE_TRY(const auto round, decode_round(message));
    BEELINE_TRY_VOID(check_round(session.end.plan(), round));
    BEELINE_TRY(const auto outcome, run_round(session, round, true));
    BEELINE_TRY_VOID(session.channel.send(encode(outcome.verdict)));
    Row row;
    row.bytes = round.size_bytes;
    row.iterations = outcome.mine.messages + outcome.peers.messages;
    row.verdict = outcome.verdict;
    report.rows.push_back(std::move(row));
  }
}

Result<Hello> greet(Channel& channel) {
  BEELINE_TRY(const auto message, channel.receive(MessageType::hello, hello_timeout));
  return decode_hello(message);
}

Result<Report> server(const Options& options, const Hello& hello, OpenDevice& device, Channel& channel,
                      Observer& observer) {
  if (hello.plan.test != options.test)
    return fail(Errc::mismatch, "this server runs {}, the client asks for {}: run the same test on both ends",
                options.test->name, hello.plan.test->name);
  BEELINE_TRY_VOID(channel.send(encode(hello)));
  BEELINE_TRY(const auto end, Endpoint::create(device, hello.plan));
  BEELINE_TRY(auto agreement, connect_ends(*end, channel, true));
  Session session{channel, observer, *end, std::move(agreement), roles_of(hello.plan, true)};
  return serve(session);
}

}  // namespace

Result<Report> run_client(const Options& options, OpenDevice& device, Channel& channel, Observer& observer) {
  auto report = client(options, device, channel, observer);
  if (!report) channel.send_failure(report.error());
  return report;
}

Result<Report> run_server(const Options& options, OpenDevice& device, Channel& channel, Observer& observer,
                          bool* greeted) {
  const auto hello = greet(channel);
  if (greeted != nullptr) *greeted = hello.has_value();
  auto report = hello ? server(options, *hello, device, channel, observer)
                      : Result<Report>(tl::unexpected(hello.error()));
  if (!report) channel.send_failure(report.error());
  return report;
}

}  // namespace beeline::perf
