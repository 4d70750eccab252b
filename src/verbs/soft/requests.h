// Work requests on their way to the card, from struct ibv_send_wr (data_path.cc) or from calls of
// ibv_wr_* (qp_ex.cc).
#pragma once

#include <array>
#include <span>

#include "verbs/soft/objects.h"

namespace beeline::verbs::soft {

// A send request with what it points to. Built in place, never copied.
struct SendRequest {
  proto::SendWr wr;
  proto::DatagramTarget target;
  proto::WindowBind bind;

  SendRequest() = default;
  SendRequest(const SendRequest&) = delete;
  SendRequest& operator=(const SendRequest&) = delete;
};

using Sges = std::array<proto::Sge, proto::max_sge>;

// False when there are more than any queue pair may have.
bool convert_sges(const ibv_sge* list, std::size_t count, Sges& out, std::span<const proto::Sge>& filled);

// All return 0 or an errno value.
int set_flags(unsigned send_flags, proto::SendWr& out);
int set_target(const Qp& qp, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey,
               proto::DatagramTarget& out);
int set_bind(const Qp& qp, ibv_mw* mw, ibv_mw_type type, std::uint32_t new_rkey, const ibv_mw_bind_info& info,
             proto::WindowBind& out);

// Posting a request that is complete.
int post(Qp& qp, const proto::SendWr& request);

}  // namespace beeline::verbs::soft
