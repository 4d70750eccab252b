#include "cli/ranks/meeting.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "bootstrap/record.h"

namespace beeline::cli {
namespace {

using bootstrap::Deadline;
using bootstrap::Endpoint;
using bootstrap::equal;
using bootstrap::Frame;
using bootstrap::FrameReader;

namespace message {
constexpr std::uint8_t knock = 41;
constexpr std::uint8_t answer = 42;
constexpr std::uint8_t report = 43;
constexpr std::uint8_t verdict = 44;
}  // namespace message

constexpr std::uint32_t most_small_bytes = 512;
constexpr std::size_t most_host_bytes = 256;
constexpr std::size_t most_strangers = 64;
constexpr Duration stranger_patience = 5s, connect_patience = 2s, goodbye_patience = 3s;
constexpr auto between_tries = std::chrono::milliseconds(200);

// What rank 0 answers, so that a rank knows it from a stranger on the same port.
Secret answer_to(const Secret& secret) {
  return secret_of("answer", {reinterpret_cast<const char*>(secret.data()), secret.size()});
}

Result<Descriptor> knock_at(const Endpoint& place, const Secret& secret, int rank, const std::string& host,
                            const Deadline& deadline) {
  BEELINE_TRY(Descriptor fd, bootstrap::connect_to(place, deadline.sooner(connect_patience)));
  bootstrap::RecordWriter knock;
  knock.bytes(secret).u32(static_cast<std::uint32_t>(rank)).text(host.substr(0, most_host_bytes));
  const auto patience = deadline.sooner(stranger_patience);
  BEELINE_TRY_VOID(bootstrap::write_frame(fd.get(), message::knock, knock.view(), patience));
  FrameReader reader(most_small_bytes);
  BEELINE_TRY(const Frame answer, bootstrap::read_frame(fd.get(), reader, patience));
  if (answer.type != message::answer || !equal(answer_to(secret), answer.body))
    return fail(Errc::protocol, "somebody else listens there");
  return fd;
}

}  // namespace

// FNV-1a, 64 bits twice (http://www.isthe.com/chongo/tech/comp/fnv/). It keeps strangers out who came by
// accident; a secret that nobody may guess is drawn, not derived.
Secret secret_of(std::string_view purpose, std::string_view text) {
  Secret out{};
  std::uint64_t state = 0xCBF29CE484222325u;
  const auto mix = [&](std::string_view part) {
    for (const char c : part) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    state = (state ^ 0xFFu) * 0x100000001B3u;
  };
  for (std::size_t half = 0; half < 2; ++half) {
    mix(purpose);
    mix(text);
    store_be64(out.data() + 8 * half, state);
  }
  return out;
}

Result<Collection> Collection::open(const std::vector<IpAddress>& addresses,
                                    const std::vector<std::uint16_t>& ports, int size, const Secret& secret) {
  Collection out(size, secret);
  Error last{Errc::not_found, "this host has no address to be reached at"};
  for (const auto& address : addresses)
    for (const auto port : ports) {
      auto listener = bootstrap::listen_on({address, port});
      auto endpoint =
          listener ? bootstrap::local_endpoint(listener->get()) : tl::unexpected(listener.error());
      if (!endpoint) {
        last = endpoint.error();
        continue;
      }
      out.listeners_.push_back(std::move(*listener));
      out.endpoints_.push_back(*endpoint);
      break;
    }
  if (out.listeners_.empty()) return tl::unexpected(last);
  return out;
}

std::vector<std::optional<Contribution>> Collection::collect(const Deadline& deadline) {
  std::vector<std::optional<Contribution>> all(static_cast<std::size_t>(size_));
  const auto complete = [&] {
    return std::all_of(all.begin() + 1, all.end(), [](const auto& one) { return one.has_value(); });
  };
  while (!complete() && !deadline.passed()) {
    std::vector<pollfd> entries;
    for (const auto& listener : listeners_) entries.push_back({listener.get(), POLLIN, 0});
    // One that has brought its report waits for the verdict: it is heard only when it leaves.
    for (const auto& visitor : visitors_) entries.push_back({visitor.connection.get(), POLLIN, 0});
    (void)::poll(entries.data(), entries.size(), deadline.poll_ms(1s));
    const auto first = listeners_.size();
    for (std::size_t i = first; i < entries.size(); ++i)
      if (entries[i].revents != 0) hear(visitors_[i - first], all);
    const auto over = [](const Visitor& visitor) {
      return visitor.dismissed || (visitor.rank < 0 && visitor.patience.passed());
    };
    visitors_.erase(std::remove_if(visitors_.begin(), visitors_.end(), over), visitors_.end());
    for (std::size_t i = 0; i < first; ++i)
      if (entries[i].revents != 0) accept_from(entries[i].fd);
  }
  return all;
}

void Collection::accept_from(int listener) {
  while (Descriptor connection = bootstrap::accept_one(listener)) {
    if (visitors_.size() >= static_cast<std::size_t>(size_) + most_strangers) {
      // The oldest that has not knocked makes room.
      const auto stranger =
          std::find_if(visitors_.begin(), visitors_.end(), [](const auto& v) { return v.rank < 0; });
      if (stranger == visitors_.end()) return;
      visitors_.erase(stranger);
    }
    visitors_.push_back(
        {std::move(connection), FrameReader(most_small_bytes), Deadline(stranger_patience), -1, "", false});
  }
  // Out of descriptors the listener stays readable: do not spin on it.
  if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(50ms);
}

void Collection::hear(Visitor& visitor, std::vector<std::optional<Contribution>>& all) {
  for (;;) {
    Frame frame;
    const auto outcome = visitor.reader.read(visitor.connection.get(), frame);
    if (outcome && *outcome == bootstrap::ReadOutcome::would_block) return;
    visitor.dismissed = !outcome || *outcome != bootstrap::ReadOutcome::frame || !take(visitor, frame, all);
    if (visitor.dismissed) return;
  }
}

bool Collection::take(Visitor& visitor, const Frame& frame, std::vector<std::optional<Contribution>>& all) {
  if (visitor.rank >= 0) {
    auto& mine = all[static_cast<std::size_t>(visitor.rank)];
    if (frame.type != message::report || mine) return false;
    mine = Contribution{visitor.host, {reinterpret_cast<const char*>(frame.body.data()), frame.body.size()}};
    return true;
  }
  bootstrap::RecordReader reader(frame.body);
  const Bytes secret = reader.bytes(secret_.size());
  const auto rank = reader.u32();
  const auto host = bootstrap::printable(reader.text(most_host_bytes), most_host_bytes);
  if (frame.type != message::knock || !reader.complete() || !equal(secret_, secret)) return false;
  if (rank == 0 || rank >= static_cast<std::uint32_t>(size_) || all[rank]) return false;
  visitor.rank = static_cast<int>(rank);
  visitor.host = host;
  visitor.reader = FrameReader(most_report_bytes);
  const auto answer = answer_to(secret_);
  return bootstrap::write_frame(visitor.connection.get(), message::answer, answer, Deadline(0s)).has_value();
}

void Collection::conclude(int status) {
  const std::array<std::byte, 1> verdict{static_cast<std::byte>(status)};
  for (auto& visitor : visitors_)
    if (visitor.rank < 0 ||
        !bootstrap::write_frame(visitor.connection.get(), message::verdict, verdict, Deadline(0s)))
      visitor.connection.reset();
  // They close when they have heard it. A launcher ends all ranks when the first has failed.
  const Deadline patience(goodbye_patience);
  for (auto& visitor : visitors_)
    if (visitor.connection) (void)bootstrap::wait_for(visitor.connection.get(), POLLIN, patience);
  visitors_.clear();
}

Result<Descriptor> find_rank0(const std::vector<Endpoint>& places, const Secret& secret, int rank,
                              const std::string& host, const Deadline& deadline) {
  std::string tried;
  for (const auto& place : places) tried += (tried.empty() ? "" : ", ") + bootstrap::to_string(place);
  Error last{Errc::not_found, "it has no address that this host can reach"};
  do {
    for (const auto& place : places) {
      auto connection = knock_at(place, secret, rank, host, deadline);
      if (connection) return connection;
      last = connection.error();
    }
    std::this_thread::sleep_for(between_tries);
  } while (!deadline.passed());
  return fail(Errc::timed_out,
              "rank 0 was not reached at {} (at last: {}); is it running, and may these hosts speak TCP? "
              "--rendezvous HOST:PORT names another place",
              tried.empty() ? "any address" : tried, last.message);
}

Result<int> bring(const Descriptor& rank0, const std::string& report, const Deadline& deadline) {
  BEELINE_TRY_VOID(
      bootstrap::write_frame(rank0.get(), message::report, std::as_bytes(std::span(report)), deadline));
  FrameReader reader(most_small_bytes);
  BEELINE_TRY(const Frame verdict, bootstrap::read_frame(rank0.get(), reader, deadline));
  if (verdict.type != message::verdict || verdict.body.size() != 1)
    return fail(Errc::protocol, "rank 0 says something else than a status");
  return static_cast<int>(verdict.body.front());
}

}  // namespace beeline::cli
