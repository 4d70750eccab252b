// The connections of the local lane: who may connect, and what becomes of those who end.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/abstract_name.h"
#include "base/log.h"
#include "nic/local/local_lane.h"

namespace beeline::nic::local {
namespace {

constexpr std::uint64_t listener_tag = 0;
constexpr std::uint64_t process_tag = std::uint64_t{1} << 32;  // and the link: its process has ended

AbstractName name_of(std::uint8_t slot) { return AbstractName(fmt::format("beeline.local.{}", slot)); }

Descriptor make_socket() {
  return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// The process at the other end, when it is of our user.
std::optional<pid_t> process_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != ::geteuid())
    return std::nullopt;
  return peer.pid;
}

bool add_to(int epoll, int descriptor, std::uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

}  // namespace

Result<std::unique_ptr<LocalLane>> LocalLane::create(port::Slot slot, Lane rule, Engine& engine,
                                                     port::Port& port, SharedAllocations& allocations) {
  Descriptor listener = make_socket(), epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!listener || !epoll) return fail_errno(errno, "cannot make the sockets of the local lane");
  const AbstractName name = name_of(slot.value);
  if (::bind(listener.get(), name.get(), name.length) != 0 || ::listen(listener.get(), 256) != 0)
    return fail_errno(errno, fmt::format("cannot take the name @beeline.local.{}", slot.value));
  if (!add_to(epoll.get(), listener.get(), listener_tag) || !add_to(port.wait_descriptor(), epoll.get(), 0))
    return fail_errno(errno, "cannot watch the sockets of the local lane");
  return std::unique_ptr<LocalLane>(
      new LocalLane(slot, rule, engine, port, allocations, std::move(listener), std::move(epoll)));
}

// nullptr when there is no such process of our user, or it does not know this lane.
std::shared_ptr<Link> LocalLane::link_to(std::uint8_t slot) {
  if (const auto known = links_by_slot_.find(slot); known != links_by_slot_.end())
    return links_.at(known->second);
  if (links_.size() >= links_max) return nullptr;
  Descriptor socket = make_socket();
  const AbstractName name = name_of(slot);
  if (!socket || ::connect(socket.get(), name.get(), name.length) != 0) return nullptr;
  const auto process = process_of(socket.get());
  if (!process) return nullptr;
  auto link = std::make_shared<Link>(std::move(socket), *process);
  if (!link->open({witness_.get()}) || !watch(link)) return nullptr;
  links_by_slot_[slot] = next_link_ - 1;
  return link;
}

bool LocalLane::watch(const std::shared_ptr<Link>& link) {
  const std::uint32_t id = next_link_++;
  if (!add_to(epoll_.get(), link->socket(), id)) return false;
  if (link->process() >= 0) (void)add_to(epoll_.get(), link->process(), process_tag | id);
  links_.emplace(id, link);
  return true;
}

void LocalLane::look_at_links(TimePoint now) {
  epoll_event events[messages_per_look];
  const int ready = ::epoll_wait(epoll_.get(), events, messages_per_look, 0);
  for (int i = 0; i < ready; ++i) {
    if (events[i].data.u64 == listener_tag) {
      accept_links();
      continue;
    }
    const auto found = links_.find(static_cast<std::uint32_t>(events[i].data.u64));
    if (found == links_.end()) continue;
    const std::shared_ptr<Link> link = found->second;
    // What it said before it ended comes first.
    const bool goes_on = read_link(link, now);
    if (!goes_on || (events[i].data.u64 & process_tag) != 0) lose(link, now);
  }
}

void LocalLane::accept_links() {
  for (int i = 0; i < messages_per_look; ++i) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    const auto process = process_of(socket.get());
    if (!process || links_.size() >= links_max) continue;
    (void)watch(std::make_shared<Link>(std::move(socket), *process));
  }
}

bool LocalLane::read_link(const std::shared_ptr<Link>& link, TimePoint now) {
  Link::Received received;
  for (int i = 0; i < messages_per_look; ++i) {
    const Link::Status status = link->receive(received);
    if (status == Link::Status::nothing) return true;
    if (status == Link::Status::ended) return false;
    if (received.message.kind == Kind::hello) {
      const auto taken = link->take_hello(received.message, std::move(received.file), {witness_.get()});
      if (!taken) {
        logger()->debug("a connection of the local lane ends: {}", taken.error().message);
        return false;
      }
    } else if (!link->is_open()) {
      return false;  // a hello comes first
    } else {
      handle(link, received, now);
    }
  }
  return true;
}

// Its queue pairs are told; those that only ask have the wire.
void LocalLane::lose(const std::shared_ptr<Link>& link, TimePoint now) {
  std::erase_if(links_by_slot_, [&](const auto& entry) {
    const auto found = links_.find(entry.second);
    return found == links_.end() || found->second == link;
  });
  std::erase_if(links_, [&](const auto& entry) { return entry.second == link; });
  // By name: a forked child may hold the descriptors, and would keep them in the set.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link->socket(), nullptr);
  if (link->process() >= 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link->process(), nullptr);
  const std::vector<QueuePair*> attached = attached_;
  for (QueuePair* qp : attached) {
    if (qp->local == nullptr || qp->local->link != link) continue;
    if (!qp->local->active) {
      take_wire(*qp, proto::WcStatus::retry_exceeded, now);
      continue;
    }
    {
      const std::lock_guard lock(qp->mutex);
      qp->protocol.lose_local_peer(now);
    }
    more_ |= step(*qp, now);
  }
}

}  // namespace beeline::nic::local
