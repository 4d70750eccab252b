// WRITEs past the ring: who may, and how (direct_writes.h).
#include <array>
#include <cstring>

#include "nic/local/local_lane.h"

namespace beeline::nic::local {
namespace {

// What a peer may have us map.
constexpr std::uint64_t most_mapped = std::uint64_t{64} << 20;

std::uint64_t length_of(std::span<const proto::Sge> sges) {
  std::uint64_t length = 0;
  for (const proto::Sge& sge : sges) length += sge.length;
  return length;
}

bool is_write(proto::WrOpcode opcode) {
  return opcode == proto::WrOpcode::write || opcode == proto::WrOpcode::write_imm;
}

// All into one line-up of bytes, whether from registered memory or not.
bool gather(std::span<const proto::Sge> sges, bool inline_data, PdId domain, RegionTable& regions,
            std::byte* to) {
  for (const proto::Sge& sge : sges) {
    if (inline_data)
      std::memcpy(to, reinterpret_cast<const std::byte*>(sge.address), sge.length);
    else if (regions.read(domain, sge.lkey, sge.address, {to, sge.length}, proto::Access::none) !=
             proto::MemoryStatus::ok)
      return false;
    to += sge.length;
  }
  return true;
}

}  // namespace

// Whatever is odd about a request is left to the way that says what.
bool LocalLane::write_directly(QueuePair& qp, const proto::SendWr& request, RegionTable& regions) {
  DirectWrites& direct = qp.local->direct;
  if (request.opcode != proto::WrOpcode::write) return false;
  const std::uint64_t length = length_of(request.sges);
  if (length == 0 || length > direct_write_bytes) return false;
  std::byte* const to = direct.find(request.rkey, request.remote_address, length);
  if (to == nullptr || !qp.protocol.may_write_directly()) return false;
  const proto::QpLimits& limits = qp.protocol.limits();
  if (request.sges.size() > limits.send_sges || (request.inline_data && length > limits.inline_bytes))
    return false;
  if (!direct.write([&] { return execute(qp, request, to, regions); })) return false;
  if (request.signaled) deliver_completions(qp, port_.now());
  return true;
}

// Inside the gate.
bool LocalLane::execute(QueuePair& qp, const proto::SendWr& request, std::byte* to, RegionTable& regions) {
  const std::uint64_t length = length_of(request.sges);
  if (request.inline_data && request.sges.size() == 1) {
    store_last_word_last(to, reinterpret_cast<const std::byte*>(request.sges[0].address), length);
  } else {
    std::array<std::byte, direct_write_bytes> bytes;  // filled in as far as it is used
    if (!gather(request.sges, request.inline_data, qp.domain, regions, bytes.data())) return false;
    store_last_word_last(to, bytes.data(), length);
  }
  const auto count = static_cast<std::uint32_t>(length);
  if (!request.signaled) {
    qp.protocol.note_direct_write(count);
    return true;
  }
  // Without room it is refused the other way, too; that it has been executed then harms nobody.
  return qp.protocol.complete_direct_write(request, count) == proto::PostResult::ok;
}

// It is then executed in its turn. Should it be refused or fail, bytes that came to nothing lie in memory
// that this peer may write to at any time.
bool LocalLane::place(QueuePair& qp, const proto::SendWr& request, RegionTable& regions) {
  if (!is_write(request.opcode) || request.inline_data || request.fence) return false;
  const std::uint64_t length = length_of(request.sges);
  if (length <= direct_write_bytes || length > most_placed_bytes) return false;
  DirectWrites& direct = qp.local->direct;
  std::byte* const to = direct.find(request.rkey, request.remote_address, length);
  if (to == nullptr || !qp.protocol.may_place() || request.sges.size() > qp.protocol.limits().send_sges)
    return false;
  return direct.write([&] { return gather(request.sges, false, qp.domain, regions, to); });
}

void LocalLane::want(QueuePair& qp, const proto::SendWr& request) {
  if (!is_write(request.opcode) || qp.local == nullptr || !qp.local->active) return;
  DirectWrites& direct = qp.local->direct;
  if (!direct.should_ask(request.rkey) || length_of(request.sges) > most_placed_bytes) return;
  direct.note_asked(request.rkey);
  Message want;
  want.kind = Kind::want;
  want.from = qp.qpn;
  want.to = qp.protocol.attributes().destination;
  want.key = request.rkey;
  (void)qp.local->link->send(want);  // a full socket: the ring is good enough
}

// The queue pair of ours that shares a ring with the one that this is about. It is not locked.
QueuePair* LocalLane::find_joined(const std::shared_ptr<Link>& link, const Message& message) {
  const auto found = queue_pairs_.find(message.to.value);
  if (found == queue_pairs_.end()) return nullptr;
  QueuePair& qp = *found->second;
  const std::lock_guard lock(qp.mutex);
  const bool joined = qp.local != nullptr && qp.local->active && qp.local->link == link &&
                      qp.protocol.attributes().destination == message.from;
  return joined ? &qp : nullptr;
}

void LocalLane::handle_want(const std::shared_ptr<Link>& link, const Message& want) {
  QueuePair* const qp = find_joined(link, want);
  if (qp == nullptr) return;
  const std::lock_guard lock(qp->mutex);
  const proto::QpState state = qp->protocol.state();
  if (!qp->local->direct.may_grant(want.key) || state < proto::QpState::rtr || state > proto::QpState::sqe ||
      !proto::allows(qp->protocol.attributes().access, proto::Access::remote_write))
    return;
  const auto shared = allocations_.share(qp->domain, want.key);
  if (!shared) return;
  Message grant;
  grant.kind = Kind::grant;
  grant.id = qp->local->direct.grant(want.key);
  grant.from = qp->qpn;
  grant.to = want.from;
  grant.key = want.key;
  grant.address = shared->iova;
  grant.offset = shared->offset;
  grant.bytes = shared->bytes;
  grant.memory_bytes = shared->file_bytes;
  if (!link->send(grant, shared->file.get())) qp->local->direct.revoke();
}

void LocalLane::handle_grant(const std::shared_ptr<Link>& link, const Message& grant, Descriptor file) {
  QueuePair* const qp = find_joined(link, grant);
  if (qp == nullptr || !file) return;
  const std::lock_guard lock(qp->mutex);
  const auto number = static_cast<std::uint32_t>(grant.id);
  if (!qp->local->direct.has_asked(grant.key) || number == 0 || grant.memory_bytes > most_mapped ||
      grant.offset > grant.memory_bytes || grant.bytes > grant.memory_bytes - grant.offset)
    return;
  auto memory = SharedMemory::adopt(std::move(file), grant.memory_bytes);
  if (memory)
    qp->local->direct.use(grant.key, std::move(*memory), number, grant.address, grant.offset, grant.bytes);
}

// The key is good for nothing any more, so nobody gets a new permission.
void LocalLane::revoke(Key key) {
  const std::lock_guard lock(mutex_);
  for (QueuePair* qp : attached_) {
    const std::lock_guard inner(qp->mutex);
    if (qp->local->direct.grants(key)) qp->local->direct.revoke();
  }
}

}  // namespace beeline::nic::local
