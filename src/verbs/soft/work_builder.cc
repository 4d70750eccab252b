#include "verbs/soft/work_builder.h"

#include <cerrno>

#include "verbs/soft/convert.h"

namespace beeline::verbs::soft {
namespace {

constexpr std::uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
// Windows serve RC alone here; no UC packet carries a key to invalidate (IBTA vol. 1, table 38).
constexpr std::uint64_t unreliable = sends | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
constexpr std::uint64_t reliable = unreliable | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |
                                   IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;

constexpr bool moves_data(proto::WrOpcode opcode) {
  return opcode != proto::WrOpcode::local_inv && opcode != proto::WrOpcode::bind_mw;
}

}  // namespace

std::uint64_t WorkBuilder::operations_of(proto::QpType service) {
  switch (service) {
    case proto::QpType::rc:
      return reliable;
    case proto::QpType::uc:
      return unreliable;
    case proto::QpType::ud:
      return sends;
  }
  return 0;
}

void WorkBuilder::start() {
  if (is_inside()) {
    fail(EINVAL);  // the section is open already: waiting for it would never end
    return;
  }
  section_.lock();
  inside_ = std::this_thread::get_id();
  error_ = 0;
  count_ = 0;
  pieces_.clear();
  inline_bytes_.clear();
}

void WorkBuilder::leave() {
  inside_ = std::thread::id{};
  section_.unlock();
}

void WorkBuilder::abort() {
  if (is_inside()) leave();
}

int WorkBuilder::complete() {
  if (!is_inside()) return EINVAL;
  const int error = error_ != 0 ? error_ : post_all();
  leave();
  return error;
}

proto::SendWr& WorkBuilder::begin(proto::WrOpcode opcode, std::uint64_t operation) {
  if (!is_inside()) return nowhere_;
  if ((operations_ & operation) == 0) fail(EINVAL);
  if (count_ == qp_.init.cap.max_send_wr) fail(ENOMEM);
  if (error_ != 0) return nowhere_;
  if (count_ == pending_.size()) pending_.push_back(std::make_unique<Pending>());
  Pending& next = *pending_[count_++];
  next.first_piece = pieces_.size();
  next.first_inline_byte = inline_bytes_.size();
  next.pieces = next.inline_bytes = 0;
  next.has_target = false;
  proto::SendWr& wr = next.request.wr;
  wr = {};
  wr.wr_id = qp_.wr_id;
  wr.opcode = opcode;
  // Inline is what the setter of that name makes it.
  fail(set_flags(qp_.wr_flags & ~unsigned{IBV_SEND_INLINE}, wr));
  return wr;
}

WorkBuilder::Pending* WorkBuilder::last() {
  if (!is_inside() || error_ != 0) return nullptr;
  if (count_ == 0) fail(EINVAL);
  return count_ == 0 ? nullptr : pending_[count_ - 1].get();
}

void WorkBuilder::bind(ibv_mw* mw, std::uint32_t new_rkey, const ibv_mw_bind_info& info) {
  begin(proto::WrOpcode::bind_mw, IBV_QP_EX_WITH_BIND_MW);
  Pending* request = last();
  if (request == nullptr) return;
  request->request.wr.bind = &request->request.bind;
  fail(set_bind(qp_, mw, IBV_MW_TYPE_2, new_rkey, info, request->request.bind));
}

void WorkBuilder::set_target(ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) {
  Pending* request = last();
  if (request == nullptr) return;
  if (qp_.service != proto::QpType::ud) return fail(EINVAL);
  request->has_target = true;
  request->request.wr.target = &request->request.target;
  fail(soft::set_target(qp_, ah, remote_qpn, remote_qkey, request->request.target));
}

// Data is given once, to a request that carries some.
bool WorkBuilder::accepts_data() {
  Pending* request = last();
  if (request == nullptr) return false;
  const bool fresh = request->pieces == 0 && !request->request.wr.inline_data;
  if (!fresh || !moves_data(request->request.wr.opcode)) fail(EINVAL);
  return error_ == 0;
}

void WorkBuilder::set_pieces(std::span<const ibv_sge> pieces) {
  if (!accepts_data()) return;
  if (pieces.size() > qp_.init.cap.max_send_sge) return fail(EINVAL);
  last()->pieces = pieces.size();
  for (const ibv_sge& piece : pieces) pieces_.push_back({piece.addr, piece.length, Key{piece.lkey}});
}

void WorkBuilder::set_inline(std::span<const ibv_data_buf> buffers) {
  if (!accepts_data()) return;
  Pending& request = *last();
  request.request.wr.inline_data = true;
  for (const ibv_data_buf& buffer : buffers) {
    if (buffer.length > qp_.init.cap.max_inline_data - request.inline_bytes) return fail(EINVAL);
    const auto* bytes = static_cast<const std::byte*>(buffer.addr);
    inline_bytes_.insert(inline_bytes_.end(), bytes, bytes + buffer.length);
    request.inline_bytes += buffer.length;
  }
}

int WorkBuilder::post_all() {
  if (!qp_.alive) return EINVAL;
  for (std::size_t i = 0; i < count_; ++i)
    if (qp_.service == proto::QpType::ud && !pending_[i]->has_target) return EINVAL;
  for (std::size_t i = 0; i < count_; ++i) {
    Pending& next = *pending_[i];
    proto::SendWr& wr = next.request.wr;
    const proto::Sge inlined{reinterpret_cast<std::uint64_t>(inline_bytes_.data() + next.first_inline_byte),
                             static_cast<std::uint32_t>(next.inline_bytes), Key{}};
    if (wr.inline_data)
      wr.sges = std::span(&inlined, next.inline_bytes == 0 ? 0 : 1);
    else
      wr.sges = std::span(pieces_).subspan(next.first_piece, next.pieces);
    if (const int error = post(qp_, wr); error != 0) return error;
  }
  return 0;
}

}  // namespace beeline::verbs::soft
