// One UC or UD queue pair, its peer played by the test.
#pragma once

#include "proto/shared_receive_queue.h"
#include "proto/testing/solo.h"

namespace beeline::proto::testing {

inline constexpr std::uint32_t own_qkey = 0x1234'5678, other_qkey = 0x0EAF;
inline constexpr Qpn peer_qpn{0xABCDEF};

inline DatagramTarget target_of(Qpn qpn, std::uint32_t qkey) {
  DatagramTarget target;
  target.path = {IpAddress::v4(10, 0, 0, 1), IpAddress::v4(10, 0, 0, 2), 0xC123, 0, 64};
  target.remote_qpn = qpn;
  target.remote_qkey = qkey;
  return target;
}

inline PairOptions unreliable_options(QpType type) {
  PairOptions options = solo_options();
  options.type = type;
  options.attributes.qkey = own_qkey;
  return options;
}

inline void no_limit(void*) {}

class UnreliableSolo : public Solo {
 public:
  explicit UnreliableSolo(QpType of_type, QpState upto = QpState::rts, SharedReceiveQueue* shared = nullptr)
      : Solo(unreliable_options(of_type), upto, shared), type(of_type) {}

  SendWr request_of(WrOpcode opcode, std::uint64_t wr_id = 0) {
    SendWr wr;
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.signaled = true;
    wr.immediate = 0xABCD;
    wr.remote_address = remote_base;
    wr.rkey = Key{0x77};
    if (type == QpType::ud) wr.target = &target;
    return wr;
  }
  PostResult post(WrOpcode opcode, std::uint32_t length, std::uint64_t wr_id = 0, Key lkey = local_key) {
    const Sge sge{local_base, length, lkey};
    SendWr wr = request_of(opcode, wr_id);
    wr.sges = std::span(&sge, 1);
    return qp.post_send(now, wr);
  }
  Result<void> go(QpState state, std::uint32_t more = 0) {
    QpAttr attributes = qp.attributes();
    attributes.state = state;
    return qp.modify(now, attributes, attr::state | more);
  }
  // A request packet of the peer's; a datagram with our Q_Key.
  void packet(wire::Opcode opcode, Psn psn, std::uint32_t bytes, std::uint32_t reth_length = 0) {
    wire::Headers headers = header(opcode, psn, false);
    headers.bth.pad_count = wire::pad_for(bytes);
    headers.reth.length = reth_length;
    headers.deth = {own_qkey, peer_qpn};
    headers.immediate = 0x5EED;
    give(headers, payload(bytes));
  }

  const QpType type;
  DatagramTarget target = target_of(peer_qpn, other_qkey);
};

}  // namespace beeline::proto::testing
