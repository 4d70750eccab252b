#include "proto/ops/operations.h"

#include "base/check.h"
#include "proto/ops/gather.h"
#include "proto/ops/qp_state.h"

namespace beeline::proto {
namespace {

Memory& checked(Memory* memory) {
  BEELINE_CHECK(memory != nullptr);
  return *memory;
}

QpLimits checked(const QpLimits& limits) {
  BEELINE_CHECK(limits.send_sges <= max_sge && limits.receive_sges <= max_sge);
  BEELINE_CHECK(limits.inline_bytes <= max_inline_bytes);
  return limits;
}

}  // namespace

Operations::Operations(const QpSetup& setup)
    : memory_(checked(setup.memory)),
      domain_(setup.domain),
      qpn_(setup.qpn),
      type_(setup.type),
      limits_(checked(setup.limits)),
      sends_(type_, limits_),
      completions_(limits_.send_depth + ReceiveSource::completion_room(setup)),
      receives_(setup, completions_),
      executor_(memory_, domain_, qpn_, type_ == QpType::rc, receives_) {}

Result<void> Operations::modify(const QpAttr& attributes, std::uint32_t mask) {
  const QpState from = state();
  const QpState to = (mask & attr::state) != 0 ? attributes.state : from;
  BEELINE_TRY_VOID(check_transition(type_, from, to, mask));
  if ((mask & attr::current_state) != 0 && attributes.current_state != from)
    return fail(Errc::invalid_argument, "queue pair is in {}, not in {} as the current state attribute says",
                name(from), name(attributes.current_state));
  BEELINE_TRY_VOID(check_values(attributes, mask));
  merge_attributes(attributes_, attributes, mask);
  if (from == QpState::rts && to == QpState::sqd && (mask & attr::notify_drained) == 0)
    attributes_.notify_drained = false;
  if (to == QpState::err) {
    enter_error();
    return {};
  }
  attributes_.state = attributes_.current_state = to;
  if (to == QpState::reset) clear();
  return {};
}

PostResult Operations::post_send(const SendWr& wr) {
  if (state() < QpState::rts) return PostResult::bad_state;
  const PostResult result = sends_.post(wr, completions_.sends());
  if (result == PostResult::ok && !can_send()) flush_sends();
  return result;
}

PostResult Operations::post_recv(const RecvWr& wr) {
  if (state() == QpState::reset) return PostResult::bad_state;
  const PostResult result = receives_.post(wr);
  if (result == PostResult::ok && state() == QpState::err) receives_.flush();
  return result;
}

WcStatus Operations::check_send(const SendRequest& request) {
  const bool brings_data = answered_by_data(request.opcode);
  if (brings_data && attributes_.max_rd_atomic == 0) return WcStatus::local_qp_operation_error;
  const Access need = brings_data ? Access::local_write : Access::none;
  const MemoryStatus status = check_all(memory_, domain_, request.sges, need);
  return status == MemoryStatus::ok ? WcStatus::success : WcStatus::local_protection_error;
}

void Operations::complete_send() {
  const SendRequest& request = sends_.front();
  if (request.signaled) completions_.push(completion_of(request, WcStatus::success, qpn_));
  sends_.pop();
}

void Operations::fail_send(WcStatus status) {
  completions_.push(completion_of(sends_.front(), status, qpn_));
  sends_.pop();
  if (type_ == QpType::rc) return enter_error();
  attributes_.state = attributes_.current_state = QpState::sqe;
  flush_sends();
}

void Operations::run_local() {
  const SendRequest& request = sends_.front();
  if (request.opcode == WrOpcode::bind_mw) {
    const WindowBind& bind = sends_.operands(sends_.head()).bind;
    if (memory_.bind(domain_, qpn_, bind) != MemoryStatus::ok) return fail_send(WcStatus::window_bind_error);
  } else if (memory_.invalidate(domain_, qpn_, request.invalidate) != MemoryStatus::ok) {
    return fail_send(WcStatus::local_qp_operation_error);
  }
  complete_send();
}

void Operations::enter_error() {
  if (state() != QpState::err && receives_.is_shared()) note(QpEvent::last_request_reached);
  attributes_.state = attributes_.current_state = QpState::err;
  flush();
}

// Which event a refusal is: IBTA vol. 1, 11.6.3.
void Operations::refuse(const Verdict& nak) {
  if (!nak.reported) {
    switch (nak.code) {
      case wire::NakCode::invalid_request:
        note(QpEvent::invalid_request);
        break;
      case wire::NakCode::remote_access:
        note(QpEvent::access_violation);
        break;
      default:
        note(QpEvent::fatal);
    }
  }
  enter_error();
}

void Operations::note_established() {
  if (!established_) note(QpEvent::communication_established);
  established_ = true;
}

void Operations::note_idle() {
  if (state() != QpState::sqd || !attributes_.notify_drained) return;
  attributes_.notify_drained = false;
  note(QpEvent::send_queue_drained);
}

void Operations::flush_sends() {
  for (; !sends_.empty(); sends_.pop())
    completions_.push(completion_of(sends_.front(), WcStatus::flushed, qpn_));
}

void Operations::flush() {
  flush_sends();
  receives_.flush();
  executor_.reset();
}

void Operations::clear() {
  sends_.clear();
  receives_.clear();
  completions_.clear();
  executor_.reset();
  events_ = QpEvent::none;
  established_ = false;
  attributes_ = {};
}

}  // namespace beeline::proto
