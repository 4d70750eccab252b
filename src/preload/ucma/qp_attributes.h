// What a queue pair of a connection is to be set to, state by state, as Linux's ib_cm and rdma_cm say it.
#pragma once

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include "preload/ucma/identifier.h"

namespace beeline::preload::ucma {

// `state` is one of enum ibv_qp_state. Nothing when the connection does not have what that state needs.
std::optional<ib_uverbs_qp_attr> qp_attributes(const Identifier& identifier, std::uint32_t state);

// The way to the peer.
ib_uverbs_ah_attr address_of_peer(const Identifier& identifier);

}  // namespace beeline::preload::ucma
