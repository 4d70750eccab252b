// Between the words of the verbs header and those of the protocol core.
#pragma once

#include <infiniband/verbs.h>

#include <optional>

#include "nic/card.h"

namespace beeline::verbs::soft {

int to_errno(Errc code);
int to_errno(proto::PostResult result);

// Nothing for flags that this card does not offer.
std::optional<proto::Access> to_access(unsigned flags);
unsigned from_access(proto::Access access);

std::optional<proto::QpState> to_state(ibv_qp_state state);
ibv_qp_state from_state(proto::QpState state);

// An address vector or handle (convert_qp.cc).
Result<nic::AddressVector> to_address(const ibv_ah_attr& attr);

// What one ibv_modify_qp asks of the card (convert_qp.cc).
struct Modification {
  proto::QpAttr attributes;
  std::uint32_t mask = 0;
  nic::AddressVector address;
};
Result<Modification> to_modification(const ibv_qp_attr& attr, int mask);
void from_attributes(const proto::QpAttr& attributes, const nic::AddressVector& address, ibv_qp_attr& out);

std::optional<proto::QpType> to_service(ibv_qp_type type);
std::optional<proto::WrOpcode> to_opcode(ibv_wr_opcode opcode);
ibv_wc_opcode from_opcode(proto::WcOpcode opcode);
unsigned wc_flags_of(const proto::Completion& completion);
// The service level of a datagram's completion. Ethernet has none; RoCE v2 wants "a flag that indicates if
// the received frame is an IPv4, IPv6 or RoCE packet" (IBTA annex A17.4.5.1), for which the verbs have no
// field, and cards tell it here: bit 3 for a UDP header, then 2 for IPv4, 1 for IPv6. UCX finds the address
// in the GRH area by it.
std::uint8_t service_level_of(const proto::Completion& completion);
void from_completion(const proto::Completion& completion, ibv_wc& out);

}  // namespace beeline::verbs::soft
