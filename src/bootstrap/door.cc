#include "bootstrap/door.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "bootstrap/meeting.h"
#include "bootstrap/record.h"

namespace beeline::bootstrap {
namespace {

namespace message {
constexpr std::uint8_t knock = 11;
constexpr std::uint8_t answer = 12;
constexpr std::uint8_t enter = 13;
}  // namespace message

constexpr std::uint32_t max_message_bytes = 256;
constexpr std::size_t max_visitors = 64;
constexpr std::size_t max_host_bytes = 64;
constexpr Duration visitor_patience = 5s;
constexpr Duration connect_patience = 2s;
constexpr Duration answer_patience = 5s;

Result<Descriptor> knock_at_endpoint(const Endpoint& endpoint, const Entry& host, const Entry& self,
                                     Rank self_rank, const Deadline& deadline) {
  BEELINE_TRY(Descriptor fd, connect_to(endpoint, deadline.sooner(connect_patience)));
  RecordWriter knock;
  knock.u64(host.group_id).bytes(host.knock).u32(static_cast<std::uint32_t>(self_rank.value));
  knock.u32(self.identity.pid).text(self.identity.host);
  const Deadline patience = deadline.sooner(answer_patience);
  BEELINE_TRY_VOID(write_frame(fd.get(), message::knock, knock.view(), patience));
  FrameReader reader(max_message_bytes);
  BEELINE_TRY(const Frame answer, read_frame(fd.get(), reader, patience));
  if (answer.type != message::answer || !equal(host.answer, answer.body))
    return fail(Errc::protocol, "{} is not who published that address", to_string(endpoint));
  BEELINE_TRY_VOID(write_frame(fd.get(), message::enter, {}, patience));
  return fd;
}

}  // namespace

Result<Descriptor> knock_at(const Entry& host, const Entry& self, Rank self_rank, const Deadline& deadline) {
  const bool same_host = host.host_key == self.host_key;
  Error last{Errc::io, "it published no address that this host can reach"};
  for (const Endpoint& endpoint : host.endpoints) {
    if (endpoint.address.is_loopback() && !same_host) continue;  // that would be ourselves
    auto connection = knock_at_endpoint(endpoint, host, self, self_rank, deadline);
    if (connection) return connection;
    last = connection.error();
    last.message = fmt::format("{}: {}", to_string(endpoint), last.message);
  }
  return tl::unexpected(last);
}

Door::Visitor::Visitor(Descriptor fd)
    : connection(std::move(fd)), reader(max_message_bytes), patience(visitor_patience) {}

Result<std::unique_ptr<Door>> Door::open(const std::vector<IpAddress>& addresses, const GroupOptions& options,
                                         const Entry& self) {
  std::unique_ptr<Door> door(new Door(options, self));
  Error last{Errc::not_found, "this host has no address to be reached at"};
  for (const IpAddress& address : addresses) {
    auto listener = listen_on({address, 0});
    auto endpoint = listener ? local_endpoint(listener->get()) : tl::unexpected(listener.error());
    if (endpoint) {
      door->listeners_.push_back(std::move(*listener));
      door->endpoints_.push_back(*endpoint);
    } else {
      last = endpoint.error();  // an address may vanish or be tentative: the others serve
    }
  }
  if (door->listeners_.empty()) return tl::unexpected(last);
  return door;
}

std::vector<Arrival> Door::wait(int other, const Deadline& deadline) {
  std::vector<pollfd> entries{{other, POLLIN, 0}};
  for (const Descriptor& listener : listeners_) entries.push_back({listener.get(), POLLIN, 0});
  for (const auto& visitor : visitors_) entries.push_back({visitor->connection.get(), POLLIN, 0});
  (void)::poll(entries.data(), entries.size(), deadline.poll_ms());
  const std::size_t first_visitor = 1 + listeners_.size();
  for (std::size_t i = first_visitor; i < entries.size(); ++i)
    if (entries[i].revents != 0) listen_to(*visitors_[i - first_visitor]);
  std::vector<Arrival> arrivals;
  for (const auto& visitor : visitors_)
    if (visitor->entered)
      arrivals.push_back({visitor->rank, std::move(visitor->connection), std::move(visitor->identity)});
  const auto over = [](const auto& visitor) {
    return visitor->entered || visitor->dismissed || visitor->patience.passed();
  };
  visitors_.erase(std::remove_if(visitors_.begin(), visitors_.end(), over), visitors_.end());
  for (std::size_t i = 1; i < first_visitor; ++i)
    if (entries[i].revents != 0) accept_from(entries[i].fd);
  return arrivals;
}

void Door::accept_from(int listener) {
  while (Descriptor connection = accept_one(listener)) {
    if (visitors_.size() >= max_visitors) visitors_.erase(visitors_.begin());  // the oldest
    visitors_.push_back(std::make_unique<Visitor>(std::move(connection)));
  }
  // Out of descriptors the listener stays readable: do not spin on it.
  if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(50ms);
}

void Door::listen_to(Visitor& visitor) {
  for (;;) {
    Frame frame;
    const auto outcome = visitor.reader.read(visitor.connection.get(), frame);
    if (outcome && *outcome == ReadOutcome::would_block) return;
    const bool spoke = outcome && *outcome == ReadOutcome::frame;
    if (spoke && visitor.rank.value >= 0 && frame.type == message::enter && frame.body.empty()) {
      visitor.entered = true;
      return;  // what follows belongs to the link
    }
    visitor.dismissed = !(spoke && visitor.rank.value < 0 && frame.type == message::knock &&
                          knocks_right(visitor, frame.body) &&
                          write_frame(visitor.connection.get(), message::answer, self_.answer, Deadline(0s)));
    if (visitor.dismissed) return;
  }
}

bool Door::knocks_right(Visitor& visitor, Bytes body) const {
  RecordReader reader(body);
  const auto group_id = reader.u64();
  const Bytes secret = reader.bytes(self_.knock.size());
  const auto rank = reader.u32();
  const auto pid = reader.u32();
  const std::string host = printable(reader.text(max_host_bytes), max_host_bytes);
  if (!reader.complete() || group_id != self_.group_id || !equal(self_.knock, secret)) return false;
  // Only higher ranks come to us; each of them once.
  if (rank <= static_cast<std::uint32_t>(options_.rank.value) ||
      rank >= static_cast<std::uint32_t>(options_.size))
    return false;
  visitor.rank = Rank{static_cast<int>(rank)};
  visitor.identity = {pid, host};
  return true;
}

}  // namespace beeline::bootstrap
