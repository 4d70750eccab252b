#include "proto/unreliable/unreliable.h"

namespace beeline::proto {

Unreliable::Unreliable(const QpSetup& setup, Operations& operations, QpCounters& counters)
    : operations_(operations),
      sender_(setup, operations, counters),
      connected_(operations, counters),
      datagrams_(setup, operations, counters) {}

Result<void> Unreliable::modify(const QpAttr& attributes, std::uint32_t mask) {
  sender_.settle();
  const QpState from = operations_.state();
  BEELINE_TRY_VOID(operations_.modify(attributes, mask));
  const QpState to = operations_.state();
  if (to == QpState::reset || to == QpState::err) sender_.forget();
  if (from == QpState::init && to == QpState::rtr) connected_.start();
  if (from == QpState::rtr && to == QpState::rts) sender_.start();
  sender_.settle();  // what is asked to drain may have nothing to drain
  return {};
}

PostResult Unreliable::post_send(const SendWr& request) {
  sender_.settle();
  return sender_.post(request);
}

void Unreliable::handle_packet(const wire::PacketView& packet, const Arrival& arrival) {
  sender_.settle();
  if (operations_.type() == QpType::ud) {
    datagrams_.handle_packet(packet, arrival);
  } else {
    operations_.note_request();
    connected_.handle_packet(packet);
  }
  if (operations_.state() == QpState::err) sender_.forget();
}

std::size_t Unreliable::poll_completions(std::span<Completion> out) {
  sender_.settle();
  return operations_.completions().poll(out);
}

bool Unreliable::has_completions() const {
  return sender_.owes_completion() || !operations_.completions().empty();
}

}  // namespace beeline::proto
