#include "exec/connections/establish.h"

#include <cstring>
#include <thread>

#include "base/clock.h"

namespace beeline::exec {
namespace {

using Blobs = std::vector<std::vector<std::byte>>;

// First byte of what a rank contributes: did it succeed so far? Then its data, or its error's text.
constexpr std::byte good{1}, bad{0};

// Exchanges data, or the news that a rank cannot go on.
Result<Blobs> exchange(Control& control, Rank rank, const Result<std::vector<std::byte>>& mine,
                       Duration timeout) {
  std::vector<std::byte> blob{mine ? good : bad};
  if (mine) {
    blob.insert(blob.end(), mine->begin(), mine->end());
  } else {
    blob.push_back(std::byte{static_cast<std::uint8_t>(mine.error().code)});
    const Bytes text = std::as_bytes(std::span(mine.error().message));
    blob.insert(blob.end(), text.begin(), text.end());
  }
  auto all = control.all_gather(blob, timeout);
  if (!mine) return tl::unexpected<Error>(mine.error());
  if (!all) return all;
  for (std::size_t from = 0; from < all->size(); ++from) {
    auto& theirs = (*all)[from];
    if (theirs.empty())
      return fail(Errc::protocol, "{} said nothing", control.describe(Rank{static_cast<int>(from)}));
    if (theirs[0] != good && static_cast<int>(from) != rank.value) {
      const auto code = theirs.size() > 1 ? load_u8(&theirs[1]) : 0xFF;
      std::string text = theirs.size() > 2
                             ? std::string(reinterpret_cast<const char*>(&theirs[2]), theirs.size() - 2)
                             : std::string("unknown cause");
      return fail(code <= static_cast<int>(Errc::internal) ? static_cast<Errc>(code) : Errc::protocol,
                  "{} could not connect: {}", control.describe(Rank{static_cast<int>(from)}), text);
    }
    theirs.erase(theirs.begin());
  }
  return all;
}

Result<std::vector<std::byte>> nothing_if(const Result<void>& outcome) {
  if (!outcome) return tl::unexpected<Error>(outcome.error());
  return std::vector<std::byte>{};
}

// Waits for everybody's probe.
class Probes : public Listener {
 public:
  Probes(Connections& connections, int size, Rank rank, std::uint32_t communicator)
      : connections_(connections), seen_(static_cast<std::size_t>(size), false), communicator_(communicator) {
    seen_[static_cast<std::size_t>(rank.value)] = true;
  }
  bool complete() const { return !missing(); }
  std::optional<Rank> missing() const {
    for (std::size_t i = 0; i < seen_.size(); ++i)
      if (!seen_[i]) return Rank{static_cast<int>(i)};
    return std::nullopt;
  }
  const std::optional<Error>& error() const { return error_; }

  void on_message(Rank peer, const Message& message) override {
    if (message.kind == MessageKind::probe && message.call.communicator == communicator_) {
      seen_[static_cast<std::size_t>(peer.value)] = true;
      connections_.accept(peer, message);
    } else {
      on_broken(peer, {Errc::protocol, fmt::format("rank {} did not begin with a probe", peer.value)});
    }
  }
  void on_parcel(Rank peer, const Parcel&) override { on_data(peer, 0, 0); }
  void on_data(Rank peer, std::uint32_t, std::uint32_t) override {
    on_broken(peer, {Errc::protocol, fmt::format("rank {} sent data before anything else", peer.value)});
  }
  void on_written(Rank, std::uint32_t) override {}
  void on_broken(Rank, Error error) override {
    if (!error_) error_ = std::move(error);
  }

 private:
  Connections& connections_;
  std::vector<bool> seen_;
  std::uint32_t communicator_;
  std::optional<Error> error_;
};

class Establishment {
 public:
  Establishment(Rank rank, const Terms& terms, Control& control, Duration timeout)
      : rank_(rank), terms_(terms), control_(control), deadline_(monotonic_now() + timeout) {}

  Result<std::unique_ptr<Connections>> run(Result<std::unique_ptr<Connections>> created) {
    BEELINE_TRY(auto hellos, exchange(control_, rank_, greeting(created), left()));
    Connections& connections = **created;
    const auto connected = connect_all(connections, hellos);
    // Everybody has posted receives before anybody sends.
    BEELINE_TRY(auto ready, exchange(control_, rank_, nothing_if(connected), left()));
    const auto probed = probe_all(connections);
    BEELINE_TRY(auto done, exchange(control_, rank_, nothing_if(probed), left()));
    connections.open_mailboxes();
    return created;
  }

 private:
  Duration left() const { return std::max<Duration>(deadline_ - monotonic_now(), 1ms); }

  template <class Body>
  Result<void> for_each_peer(Body body) const {
    for (int peer = 0; peer < terms_.size; ++peer)
      if (Rank{peer} != rank_) BEELINE_TRY_VOID(body(Rank{peer}));
    return {};
  }

  Result<std::vector<std::byte>> greeting(const Result<std::unique_ptr<Connections>>& created) const {
    if (!created) return tl::unexpected<Error>(created.error());
    Hello hello{.rank = rank_, .terms = terms_, .addresses = {}};
    for (int peer = 0; peer < terms_.size; ++peer)
      hello.addresses.push_back((*created)->local_address(Rank{peer}));
    return encode(hello);
  }

  Result<void> connect_all(Connections& connections, const Blobs& hellos) const {
    if (hellos.size() != static_cast<std::size_t>(terms_.size))
      return fail(Errc::protocol, "{} ranks answered, not {}", hellos.size(), terms_.size);
    return for_each_peer([&](Rank peer) -> Result<void> {
      BEELINE_TRY(const Hello hello,
                  decode_hello(hellos[static_cast<std::size_t>(peer.value)], peer, terms_));
      auto connected = connections.connect(peer, hello.addresses[static_cast<std::size_t>(rank_.value)]);
      if (!connected)
        return fail(connected.error().code, "connecting rank {} to {}: {}", rank_.value,
                    control_.describe(peer), connected.error().message);
      return {};
    });
  }

  Result<void> probe_all(Connections& connections) const {
    BEELINE_TRY_VOID(for_each_peer([&](Rank peer) {
      Message probe = connections.invitation(peer);
      probe.call.communicator = terms_.communicator;
      return connections.send(peer, probe, true);
    }));
    Probes probes(connections, terms_.size, rank_, terms_.communicator);
    const auto finished = [&] {
      bool sent = true;
      for (int peer = 0; peer < terms_.size; ++peer) sent = sent && connections.all_sent(Rank{peer});
      return sent && probes.complete();
    };
    while (!finished()) {
      if (connections.poll(probes) == 0) std::this_thread::sleep_for(20us);
      if (probes.error())
        return fail(probes.error()->code,
                    "the RDMA path does not work though the control connection does: {}",
                    probes.error()->message);
      if (auto failure = control_.poll_failure()) return tl::unexpected<Error>(std::move(failure->error));
      if (monotonic_now() > deadline_) return silent(connections, probes);
    }
    return {};
  }

  Result<void> silent(const Connections& connections, const Probes& probes) const {
    const Rank peer = probes.missing().value_or(Rank{rank_.value == 0 ? terms_.size - 1 : 0});
    return fail(Errc::timed_out,
                "no RDMA packet from {} ({}) though the control connection works: is UDP port 4791 open?",
                control_.describe(peer), connections.path(peer));
  }

  Rank rank_;
  Terms terms_;
  Control& control_;
  TimePoint deadline_;
};

}  // namespace

Result<std::unique_ptr<Connections>> establish(verbs::Provider& provider, ibv_context* context,
                                               const verbs::GidChoice& gid, Rank rank, const Terms& terms,
                                               Control& control, Duration timeout) {
  auto created = Connections::create(provider, context, gid, rank, terms.size);
  if (terms.size == 1) return created;
  return Establishment(rank, terms, control, timeout).run(std::move(created));
}

}  // namespace beeline::exec
