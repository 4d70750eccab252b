// Which lane a queue pair takes: the question is asked once, at its first send, and both ends come to the
// same answer.
//
//   - Whoever sends first asks the process of the peer, with the memory that both would share. Meanwhile
//     nothing leaves over the wire, and what comes from there is dropped (it comes again if it was meant).
//   - The other end says yes only if its queue pair is connected to just this one, is able to receive, and
//   has no
//     lane yet; it has one from then on. A peer that cannot speak of this lane has the wire.
//   - When both ask at once, the ask of the lower queue pair number counts.
//   - A process that does not answer is waited for as long as the wire would wait; the queue pair does not
//     fall back to the wire then, because the answer may have been yes.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/random.h"
#include "nic/local/local_lane.h"
#include "proto/local/patience.h"

namespace beeline::nic::local {
namespace {

constexpr Duration first_pause = 500us, longest_pause = 16ms;

// Only an address of this host can be bound.
bool is_of_this_host(const IpAddress& address) {
  const Descriptor socket(::socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return false;
  if (address.is_v4()) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    std::memcpy(&name.sin_addr, address.bytes.data() + 12, 4);
    return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
  }
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  std::memcpy(&name.sin6_addr, address.bytes.data(), 16);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
}

// Whether both know each other as the ends of one connection. If not, packets show what comes of it.
bool agrees(const QueuePair& qp, const Message& ask) {
  const proto::QpAttr& own = qp.protocol.attributes();
  const bool sends = qp.protocol.state() >= proto::QpState::rts;  // only then its first PSN is known
  return own.destination == ask.from && qp.route.known && qp.route.local == ask.to_gid &&
         qp.route.remote == ask.from_gid && own.rq_psn == ask.first_psn &&
         (!sends || own.sq_psn == ask.expected_psn);
}

TimePoint patience_ends(const proto::QpAttr& attributes, TimePoint now) {
  return attributes.timeout == 0 ? TimePoint::never() : now + proto::local::patience(attributes);
}

}  // namespace

void LocalLane::request(QueuePair& qp) {
  {
    const std::lock_guard lock(requests_mutex_);
    if (std::find(requests_.begin(), requests_.end(), &qp) == requests_.end()) requests_.push_back(&qp);
  }
  serve();
}

void LocalLane::take_requests(TimePoint now) {
  std::vector<QueuePair*> requests;
  {
    const std::lock_guard lock(requests_mutex_);
    requests.swap(requests_);
  }
  for (QueuePair* qp : requests) choose(*qp, now);
}

void LocalLane::choose(QueuePair& qp, TimePoint now) {
  bool wire = false;
  auto failure = proto::WcStatus::local_qp_operation_error;
  {
    const auto known = queue_pairs_.find(qp.qpn.value);
    if (known == queue_pairs_.end() || known->second != &qp) return;  // destroyed while somebody posted to it
    const std::lock_guard lock(qp.mutex);
    if (!qp.protocol.wants_lane() || qp.local != nullptr) return;
    const Qpn peer = qp.protocol.attributes().destination;
    std::shared_ptr<Link> link;
    if (peer != qp.qpn && qp.route.known && is_of_this_host(qp.route.remote)) {
      link = link_to(static_cast<std::uint8_t>(peer.value >> 16));
      failure = proto::WcStatus::retry_exceeded;  // nobody answers there
    }
    auto rings = link == nullptr ? Result<SharedMemory>(fail(Errc::not_found, "no such process"))
                                 : SharedMemory::create("beeline-rings", sizeof(proto::local::SharedPair));
    if (rings) {
      qp.local = std::make_shared<Attachment>();
      qp.local->rings = std::move(*rings);
      qp.local->link = std::move(link);
      do qp.local->ask_id = secure_random();
      while (asks_.contains(qp.local->ask_id));
      qp.local->give_up = patience_ends(qp.protocol.attributes(), now);
      asks_.emplace(qp.local->ask_id, &qp);
      attached_.push_back(&qp);
      users_.fetch_add(1);
      qp.protocol.note_asking();
      ask(qp, now);
      engine_.remind_thread(std::min(qp.local->give_up, qp.local->ask_again));
    } else {
      wire = true;
    }
  }
  if (wire) take_wire(qp, failure, now);
}

void LocalLane::ask(QueuePair& qp, TimePoint now) {
  Message message;
  message.kind = Kind::ask;
  message.id = qp.local->ask_id;
  message.from = qp.qpn;
  message.to = qp.protocol.attributes().destination;
  message.first_psn = qp.protocol.attributes().sq_psn;
  message.expected_psn = qp.protocol.attributes().rq_psn;
  message.from_gid = qp.route.local;
  message.to_gid = qp.route.remote;
  // A full socket: its owner has much to read yet.
  const bool sent = qp.local->link->send(message, qp.local->rings.descriptor());
  qp.local->ask_again = sent ? TimePoint::never() : now + first_pause;
}

void LocalLane::ask_again(QueuePair& qp, TimePoint now) {
  const std::lock_guard lock(qp.mutex);
  if (qp.protocol.state() == proto::QpState::err) {
    qp.local->give_up = qp.local->ask_again = TimePoint::never();  // nobody waits for the answer any more
  } else if (qp.local->give_up <= now) {
    qp.local->give_up = qp.local->ask_again = TimePoint::never();
    qp.protocol.give_up_lane(proto::WcStatus::retry_exceeded);
    deliver_completions(qp, now);
    deliver_events(qp);
  } else {
    ask(qp, now);
  }
}

// Nothing is shared with this peer. The caller does not hold the queue pair's lock.
void LocalLane::take_wire(QueuePair& qp, proto::WcStatus failure, TimePoint now) {
  {
    const std::lock_guard lock(qp.mutex);
    detach(qp);
    if (rule_ == proto::LaneRule::local) {
      logger()->error(
          "queue pair {:#08x} cannot reach {} through shared memory, and BEELINE_LANE=local allows nothing "
          "else: its "
          "peer must be of this host, user and network namespace and may not have BEELINE_LANE=wire; or set "
          "BEELINE_LANE=auto",
          qp.qpn.value, to_string(qp.route.remote));
      qp.protocol.give_up_lane(failure);
      deliver_completions(qp, now);
      deliver_events(qp);
      return;
    }
    qp.protocol.take_wire();
  }
  engine_.serve(qp);
}

// Under the queue pair's lock.
void LocalLane::activate(QueuePair& qp, int side, TimePoint now) {
  Attachment& attachment = *qp.local;
  asks_.erase(attachment.ask_id);
  attachment.rings.close_file();
  attachment.ask_again = attachment.give_up = TimePoint::never();
  attachment.active = true;
  attachment.direct.begin(*static_cast<proto::local::SharedPair*>(attachment.rings.data()), side);
  qp.protocol.take_local(*static_cast<proto::local::SharedPair*>(attachment.rings.data()), side,
                         *attachment.link);
  const auto step = qp.protocol.step_local(now);
  attachment.more = step.more;
  if (step.published) attachment.link->wake_peer();
  settle(qp, now);
}

void LocalLane::handle(const std::shared_ptr<Link>& link, Link::Received& received, TimePoint now) {
  const Message& message = received.message;
  if (message.kind == Kind::answer) return handle_answer(message, now);
  if (message.kind == Kind::want) return handle_want(link, message);
  if (message.kind == Kind::grant) return handle_grant(link, message, std::move(received.file));
  if (message.kind != Kind::ask) return;
  Message answer;
  answer.kind = Kind::answer;
  answer.id = message.id;
  answer.verdict = judge(link, message, std::move(received.file), now);
  (void)link->send(answer);
}

// Whether the queue pair of ours that is asked shares the memory; if so it does from here on.
Verdict LocalLane::judge(const std::shared_ptr<Link>& link, const Message& ask, Descriptor rings,
                         TimePoint now) {
  const auto found = queue_pairs_.find(ask.to.value);
  if (found == queue_pairs_.end()) return Verdict::absent;
  QueuePair& qp = *found->second;
  const std::lock_guard lock(qp.mutex);
  const proto::QpState state = qp.protocol.state();
  const proto::LaneState lane = qp.protocol.lane();
  if (state > proto::QpState::sqd) return Verdict::absent;
  if (lane == proto::LaneState::wire || lane == proto::LaneState::local) return Verdict::refused;
  if (state < proto::QpState::rtr) return Verdict::not_yet;
  if (!agrees(qp, ask)) return Verdict::refused;
  if (lane == proto::LaneState::asking && qp.qpn < ask.from) return Verdict::crossed;
  auto memory = SharedMemory::adopt(std::move(rings), sizeof(proto::local::SharedPair));
  if (!memory) return Verdict::refused;
  if (qp.local != nullptr) detach(qp);  // its own ask, which does not count
  qp.local = std::make_shared<Attachment>();
  qp.local->rings = std::move(*memory);
  qp.local->link = link;
  attached_.push_back(&qp);
  users_.fetch_add(1);
  activate(qp, 1, now);
  deliver_events(qp);
  return Verdict::accepted;
}

void LocalLane::handle_answer(const Message& answer, TimePoint now) {
  const auto found = asks_.find(answer.id);
  if (found == asks_.end()) return;
  QueuePair& qp = *found->second;
  switch (answer.verdict) {
    case Verdict::accepted: {
      const std::lock_guard lock(qp.mutex);
      activate(qp, 0, now);
      deliver_events(qp);
      return;
    }
    case Verdict::refused:
      return take_wire(qp, proto::WcStatus::local_qp_operation_error, now);
    case Verdict::absent:
      return take_wire(qp, proto::WcStatus::retry_exceeded, now);
    case Verdict::not_yet:
      qp.local->ask_again =
          now + std::min(longest_pause, first_pause * (1 << std::min(qp.local->refusals++, 6)));
      return;
    case Verdict::crossed:
      return;  // its ask comes, or patience ends
  }
}

}  // namespace beeline::nic::local
