#include "verbs/soft/requests.h"

#include <cerrno>

#include "verbs/soft/convert.h"
#include "verbs/soft/soft_provider.h"

namespace beeline::verbs::soft {

bool convert_sges(const ibv_sge* list, std::size_t count, Sges& out, std::span<const proto::Sge>& filled) {
  if (count > out.size()) return false;
  for (std::size_t i = 0; i < count; ++i) out[i] = {list[i].addr, list[i].length, Key{list[i].lkey}};
  filled = std::span(out).first(count);
  return true;
}

int set_flags(unsigned send_flags, proto::SendWr& out) {
  constexpr unsigned known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
  if ((send_flags & ~known) != 0) return EINVAL;  // checksums are not advertised
  out.signaled = (send_flags & IBV_SEND_SIGNALED) != 0;
  out.solicited = (send_flags & IBV_SEND_SOLICITED) != 0;
  out.fence = (send_flags & IBV_SEND_FENCE) != 0;
  out.inline_data = (send_flags & IBV_SEND_INLINE) != 0;
  return 0;
}

namespace {

// Whether it is one at all: a pointer may be anything. One that the queue pair has used before need not be
// looked up again.
bool is_address_handle(const Qp& qp, ibv_ah* ah) {
  if (ah == nullptr) return false;
  if (qp.known_ah.load(std::memory_order_relaxed) == ah) return bool(mine(ah)->alive);
  if (!qp.owner->provider->holds(ah)) return false;
  qp.known_ah.store(ah, std::memory_order_relaxed);
  return true;
}

}  // namespace

// A handle of another protection domain is not this queue pair's to use (IBTA vol. 1, 10.2.2).
int set_target(const Qp& qp, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey,
               proto::DatagramTarget& out) {
  if (remote_qpn > 0xFFFFFF || !is_address_handle(qp, ah)) return EINVAL;
  const Ah& handle = *mine(ah);
  if (handle.home != qp.home) return EINVAL;
  out.path = handle.path;
  out.remote_qpn = Qpn{remote_qpn};
  out.remote_qkey = remote_qkey;
  return 0;
}

// What the window may grant, and where, is checked when the request is executed: a completion says so.
int set_bind(const Qp& qp, ibv_mw* mw, ibv_mw_type type, std::uint32_t new_rkey, const ibv_mw_bind_info& info,
             proto::WindowBind& out) {
  const SoftProvider& provider = *qp.owner->provider;
  if (!provider.holds(mw) || mine(mw)->is_type_1 != (type == IBV_MW_TYPE_1)) return EINVAL;
  if (info.mr != nullptr && !provider.holds(info.mr)) return EINVAL;
  if (info.mr == nullptr && info.length != 0) return EINVAL;
  // Local rights mean nothing for a window, but programs give them.
  constexpr unsigned grantable =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
  constexpr unsigned harmless = IBV_ACCESS_LOCAL_WRITE | static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if ((info.mw_access_flags & ~(grantable | harmless)) != 0) return EINVAL;
  out.window = mine(mw)->first_key;
  out.new_rkey = Key{new_rkey};
  out.region = info.mr == nullptr ? Key{} : mine(info.mr)->key;
  out.address = info.addr;
  out.length = info.length;
  out.access = static_cast<std::uint8_t>(info.mw_access_flags & grantable);
  return 0;
}

int post(Qp& qp, const proto::SendWr& request) { return to_errno(qp.card->post_send(qp.pair, request)); }

}  // namespace beeline::verbs::soft
