#include "verbs/fake/fabric.h"

#include <algorithm>
#include <cerrno>

#include "verbs/fake/copy.h"

namespace beeline::verbs::fake {

Fabric::Fabric(FakeOptions::Delivery delivery) {
  if (delivery == FakeOptions::Delivery::threaded) thread_ = std::thread([this] { run(); });
}

Fabric::~Fabric() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
}

std::uint32_t Fabric::add_qp(std::unique_ptr<Qp> qp) {
  const std::uint32_t qpn = next_qpn_++;
  qp->qp_num = qpn;
  queue_pairs_[qpn] = std::move(qp);
  return qpn;
}

void Fabric::remove_qp(Qp* qp) {
  reset(qp);
  const std::uint32_t qpn = qp->qp_num;
  queue_pairs_.erase(qpn);
  for (const auto& [_, other] : queue_pairs_)
    if (other->attr.dest_qp_num == qpn) schedule(other.get());
  drain();
}

Qp* Fabric::find(std::uint32_t qpn) const {
  const auto found = queue_pairs_.find(qpn);
  return found == queue_pairs_.end() ? nullptr : found->second.get();
}

void Fabric::changed(Qp* qp) {
  schedule(qp);
  for (const auto& [_, other] : queue_pairs_)
    if (other->attr.dest_qp_num == qp->qp_num) schedule(other.get());
  drain();
}

void Fabric::set_paused(bool paused) {
  paused_ = paused;
  drain();
}

// Posting.

int Fabric::accept(Qp* qp, const ibv_send_wr& wr) {
  if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR) return EINVAL;
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > qp->init.cap.max_send_sge) return EINVAL;
  if (qp->posted - qp->retired >= qp->init.cap.max_send_wr) return ENOMEM;
  if (wr.opcode > IBV_WR_RDMA_READ) return EOPNOTSUPP;

  SendOp op;
  op.wr_id = wr.wr_id;
  op.opcode = wr.opcode;
  op.flags = wr.send_flags;
  op.immediate = wr.imm_data;
  op.remote_address = wr.wr.rdma.remote_addr;
  op.rkey = wr.wr.rdma.rkey;
  op.sges.assign(wr.sg_list, wr.sg_list + wr.num_sge);
  for (const ibv_sge& sge : op.sges) op.bytes += sge.length;
  if (op.bytes > proto::max_message_bytes) return EINVAL;
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    if (op.bytes > qp->init.cap.max_inline_data || wr.opcode == IBV_WR_RDMA_READ) return EINVAL;
    for (const ibv_sge& sge : op.sges) {
      const auto* from = reinterpret_cast<const std::byte*>(sge.addr);
      op.inline_data.insert(op.inline_data.end(), from, from + sge.length);
    }
  }
  op.sequence = qp->posted++;
  qp->sends.push_back(std::move(op));
  return 0;
}

int Fabric::post_send(Qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  const std::lock_guard guard(mutex_);
  int error = 0;
  for (; wr != nullptr && error == 0; wr = wr->next) {
    error = accept(qp, *wr);
    if (error != 0) *bad = wr;
  }
  if (qp->state == IBV_QPS_ERR) flush(qp);
  schedule(qp);
  drain();
  return error;
}

int Fabric::post_recv(Qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const std::lock_guard guard(mutex_);
  int error = 0;
  for (; wr != nullptr && error == 0; wr = wr->next) {
    if (qp->state == IBV_QPS_RESET || wr->num_sge < 0 ||
        static_cast<std::uint32_t>(wr->num_sge) > qp->init.cap.max_recv_sge)
      error = EINVAL;
    else if (qp->receives.size() >= qp->init.cap.max_recv_wr)
      error = ENOMEM;
    if (error != 0)
      *bad = wr;
    else
      qp->receives.push_back({wr->wr_id, {wr->sg_list, wr->sg_list + wr->num_sge}});
  }
  if (qp->state == IBV_QPS_ERR) flush(qp);
  if (Qp* peer = find(qp->attr.dest_qp_num)) schedule(peer);
  drain();
  return error;
}

// Scheduling.

void Fabric::schedule(Qp* qp) {
  if (qp->scheduled || qp->sends.empty()) return;
  qp->scheduled = true;
  scheduled_.push_back(qp);
}

void Fabric::drain() {
  if (thread_.joinable()) {
    work_.notify_one();
    return;
  }
  while (!paused_ && !scheduled_.empty()) {
    Qp* qp = scheduled_.front();
    scheduled_.pop_front();
    qp->scheduled = false;
    if (step(qp) == Step::again) schedule(qp);
  }
}

void Fabric::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || (!paused_ && !scheduled_.empty()); });
    if (stopping_) return;
    Qp* qp = scheduled_.front();
    scheduled_.pop_front();
    qp->scheduled = false;
    if (step(qp) == Step::again) schedule(qp);
    // Lets posting and polling threads in between two operations.
    lock.unlock();
    lock.lock();
  }
}

// Execution.

namespace {

bool is_ready(const Qp& qp) { return qp.state == IBV_QPS_RTR || qp.state == IBV_QPS_RTS; }

// Has the peer's address a GID of the device that the peer lives on?
bool address_fits(const Qp& from, const Qp& to) {
  const Gid gid = to_gid(from.attr.ah_attr.grh.dgid);
  const auto* device = reinterpret_cast<const Device*>(to.context->device);
  return std::find(device->options.gids.begin(), device->options.gids.end(), gid) !=
         device->options.gids.end();
}

bool has_immediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool is_send(ibv_wr_opcode opcode) { return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM; }

ibv_wc_opcode wc_opcode(ibv_wr_opcode opcode) {
  if (is_send(opcode)) return IBV_WC_SEND;
  return opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
}

}  // namespace

Fabric::Step Fabric::step(Qp* qp) {
  if (qp->sends.empty() || qp->state != IBV_QPS_RTS) return Step::idle;
  if (qp->fail_next) {
    const ibv_wc_status status = *qp->fail_next;
    qp->fail_next.reset();
    return finish(qp, status);
  }
  Qp* peer = find(qp->attr.dest_qp_num);
  if (!qp->reachable || peer == nullptr || !peer->reachable || peer->state == IBV_QPS_ERR)
    return finish(qp, IBV_WC_RETRY_EXC_ERR);
  if (!is_ready(*peer)) return Step::idle;
  if (peer->attr.dest_qp_num != qp->qp_num || !address_fits(*qp, *peer))
    return finish(qp, IBV_WC_RETRY_EXC_ERR);
  const SendOp& op = qp->sends.front();
  return op.opcode == IBV_WR_RDMA_READ ? read(qp, peer, op) : execute(qp, peer, op);
}

// WRITE (the part that touches memory) and everything that needs a receive.
Fabric::Step Fabric::execute(Qp* qp, Qp* peer, const SendOp& op) {
  const bool needs_receive = is_send(op.opcode) || has_immediate(op.opcode);
  if (needs_receive && peer->receives.empty()) return Step::idle;  // RNR: until one is posted
  if (!gather(qp, op)) return finish(qp, IBV_WC_LOC_PROT_ERR);
  corrupt_if_asked(qp);
  if (is_send(op.opcode)) return deliver(qp, peer, op);

  if (op.bytes > 0) {
    const Mr* target = region(peer->pd, op.rkey, op.remote_address, op.bytes, IBV_ACCESS_REMOTE_WRITE);
    if (target == nullptr || (peer->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0)
      return fail_both(qp, peer, IBV_WC_REM_ACCESS_ERR);
    copy_in(reinterpret_cast<std::byte*>(op.remote_address), scratch_.data(), op.bytes);
  }
  if (needs_receive) complete_receive(peer, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, op);
  return finish(qp, IBV_WC_SUCCESS);
}

Fabric::Step Fabric::deliver(Qp* qp, Qp* peer, const SendOp& op) {
  const RecvOp& receive = peer->receives.front();
  std::uint64_t room = 0;
  for (const ibv_sge& sge : receive.sges) room += sge.length;
  if (op.bytes > room) {
    complete_receive(peer, IBV_WC_LOC_LEN_ERR, IBV_WC_RECV, op);
    return fail_both(qp, peer, IBV_WC_REM_INV_REQ_ERR);
  }
  if (!scatter(peer, receive.sges, op.bytes)) {
    complete_receive(peer, IBV_WC_LOC_PROT_ERR, IBV_WC_RECV, op);
    return fail_both(qp, peer, IBV_WC_REM_OP_ERR);
  }
  complete_receive(peer, IBV_WC_SUCCESS, IBV_WC_RECV, op);
  return finish(qp, IBV_WC_SUCCESS);
}

Fabric::Step Fabric::read(Qp* qp, Qp* peer, const SendOp& op) {
  if (op.bytes > 0) {
    const Mr* source = region(peer->pd, op.rkey, op.remote_address, op.bytes, IBV_ACCESS_REMOTE_READ);
    if (source == nullptr || (peer->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0)
      return fail_both(qp, peer, IBV_WC_REM_ACCESS_ERR);
    scratch_.resize(op.bytes);
    copy_out(scratch_.data(), reinterpret_cast<const std::byte*>(op.remote_address), op.bytes);
    corrupt_if_asked(qp);
  }
  return finish(qp, scatter(qp, op.sges, op.bytes) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
}

// Completes the work request at the head of the send queue.
Fabric::Step Fabric::finish(Qp* qp, ibv_wc_status status) {
  const SendOp op = std::move(qp->sends.front());
  qp->sends.pop_front();
  const bool signaled = (op.flags & IBV_SEND_SIGNALED) != 0 || qp->init.sq_sig_all != 0;
  if (signaled || status != IBV_WC_SUCCESS) {
    CqEntry entry{{}, qp, op.sequence + 1, true};
    entry.wc.wr_id = op.wr_id;
    entry.wc.status = status;
    entry.wc.opcode = wc_opcode(op.opcode);
    entry.wc.byte_len = op.opcode == IBV_WR_RDMA_READ ? static_cast<std::uint32_t>(op.bytes) : 0;
    entry.wc.qp_num = qp->qp_num;
    complete(static_cast<Cq*>(qp->send_cq), entry, false);
  }
  if (status != IBV_WC_SUCCESS) enter_error(qp);
  return Step::again;
}

// A NAK: both ends go to ERR.
Fabric::Step Fabric::fail_both(Qp* qp, Qp* peer, ibv_wc_status status) {
  finish(qp, status);
  enter_error(peer);
  return Step::idle;
}

void Fabric::complete_receive(Qp* qp, ibv_wc_status status, ibv_wc_opcode opcode, const SendOp& op) {
  CqEntry entry{{}, qp, 0, false};
  entry.wc.wr_id = qp->receives.front().wr_id;
  entry.wc.status = status;
  entry.wc.opcode = opcode;
  entry.wc.byte_len = static_cast<std::uint32_t>(op.bytes);
  entry.wc.qp_num = qp->qp_num;
  entry.wc.src_qp = qp->attr.dest_qp_num;
  if (has_immediate(op.opcode)) {
    entry.wc.wc_flags = IBV_WC_WITH_IMM;
    entry.wc.imm_data = op.immediate;
  }
  qp->receives.pop_front();
  complete(static_cast<Cq*>(qp->recv_cq), entry, (op.flags & IBV_SEND_SOLICITED) != 0);
}

void Fabric::complete(Cq* cq, const CqEntry& entry, bool solicited) {
  if (cq->entries.size() >= static_cast<std::size_t>(cq->cqe)) {
    cq->overrun = true;
    return;
  }
  cq->entries.push_back(entry);
  const bool urgent = solicited || entry.wc.status != IBV_WC_SUCCESS;
  if (cq->armed == Cq::Armed::any || (cq->armed == Cq::Armed::solicited && urgent)) {
    cq->armed = Cq::Armed::no;
    if (cq->channel != nullptr) static_cast<EventChannel*>(cq->channel)->raise(cq);
  }
}

// Errors.

void Fabric::enter_error(Qp* qp) {
  if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RESET) return;
  qp->state = IBV_QPS_ERR;
  flush(qp);
  for (const auto& [_, other] : queue_pairs_)
    if (other->attr.dest_qp_num == qp->qp_num) schedule(other.get());
}

void Fabric::flush(Qp* qp) {
  for (; !qp->sends.empty(); qp->sends.pop_front()) {
    const SendOp& op = qp->sends.front();
    CqEntry entry{{}, qp, op.sequence + 1, true};
    entry.wc.wr_id = op.wr_id;
    entry.wc.status = IBV_WC_WR_FLUSH_ERR;
    entry.wc.qp_num = qp->qp_num;
    complete(static_cast<Cq*>(qp->send_cq), entry, false);
  }
  for (; !qp->receives.empty(); qp->receives.pop_front()) {
    CqEntry entry{{}, qp, 0, false};
    entry.wc.wr_id = qp->receives.front().wr_id;
    entry.wc.status = IBV_WC_WR_FLUSH_ERR;
    entry.wc.opcode = IBV_WC_RECV;
    entry.wc.qp_num = qp->qp_num;
    complete(static_cast<Cq*>(qp->recv_cq), entry, false);
  }
}

// Forgets everything that is queued, in the completion queues too.
void Fabric::reset(Qp* qp) {
  qp->state = IBV_QPS_RESET;
  qp->sends.clear();
  qp->receives.clear();
  qp->posted = qp->retired = 0;
  scheduled_.erase(std::remove(scheduled_.begin(), scheduled_.end(), qp), scheduled_.end());
  qp->scheduled = false;
  for (ibv_cq* cq : {qp->send_cq, qp->recv_cq}) {
    auto& entries = static_cast<Cq*>(cq)->entries;
    entries.erase(
        std::remove_if(entries.begin(), entries.end(), [qp](const CqEntry& entry) { return entry.qp == qp; }),
        entries.end());
  }
}

// Memory.

const Mr* Fabric::region(const ibv_pd* pd, std::uint32_t key, std::uint64_t address, std::uint64_t bytes,
                         int access) const {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return nullptr;
  const Mr* mr = found->second;
  const auto start = reinterpret_cast<std::uint64_t>(mr->addr);
  const bool inside = address >= start && bytes <= mr->length && address - start <= mr->length - bytes;
  return mr->pd == pd && inside && (mr->access & access) == access ? mr : nullptr;
}

void Fabric::corrupt_if_asked(Qp* qp) {
  if (!qp->corrupt_next || scratch_.empty()) return;
  qp->corrupt_next = false;
  scratch_[scratch_.size() / 2] ^= std::byte{0x10};
}

bool Fabric::gather(Qp* qp, const SendOp& op) {
  if ((op.flags & IBV_SEND_INLINE) != 0) {
    scratch_ = op.inline_data;
    return true;
  }
  scratch_.resize(op.bytes);
  std::size_t at = 0;
  for (const ibv_sge& sge : op.sges) {
    if (sge.length == 0) continue;
    if (region(qp->pd, sge.lkey, sge.addr, sge.length, 0) == nullptr) return false;
    copy_out(scratch_.data() + at, reinterpret_cast<const std::byte*>(sge.addr), sge.length);
    at += sge.length;
  }
  return true;
}

bool Fabric::scatter(Qp* qp, const std::vector<ibv_sge>& sges, std::size_t bytes) {
  std::size_t at = 0;
  for (const ibv_sge& sge : sges) {
    const std::size_t part = std::min<std::size_t>(sge.length, bytes - at);
    if (part == 0) continue;
    if (region(qp->pd, sge.lkey, sge.addr, sge.length, IBV_ACCESS_LOCAL_WRITE) == nullptr) return false;
    copy_in(reinterpret_cast<std::byte*>(sge.addr), scratch_.data() + at, part);
    at += part;
  }
  return true;
}

// Polling.

int Fabric::poll(Cq* cq, int count, ibv_wc* out) {
  const std::lock_guard guard(mutex_);
  int taken = 0;
  for (; taken < count && !cq->entries.empty(); ++taken) {
    const CqEntry& entry = cq->entries.front();
    if (entry.is_send) entry.qp->retired = std::max(entry.qp->retired, entry.send_sequence);
    out[taken] = entry.wc;
    cq->entries.pop_front();
  }
  return taken == 0 && cq->overrun ? -1 : taken;
}

int Fabric::arm(Cq* cq, bool solicited_only) {
  const std::lock_guard guard(mutex_);
  // A request for any completion outlives a later one for solicited ones only.
  if (cq->armed != Cq::Armed::any) cq->armed = solicited_only ? Cq::Armed::solicited : Cq::Armed::any;
  return 0;
}

}  // namespace beeline::verbs::fake
