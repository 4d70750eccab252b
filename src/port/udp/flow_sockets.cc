#include "port/udp/flow_sockets.h"

#include <algorithm>

#include "port/udp/data_socket.h"

namespace beeline::port {
namespace {
constexpr std::uint16_t attempts_max = 512;  // ports tried before we call the range full
}

FlowSockets::FlowSockets(const IpAddress& address, std::uint32_t scope_id)
    : address_(address), scope_id_(scope_id) {
  flows_.reserve(sockets_max);
}

Result<std::uint16_t> FlowSockets::port_for(std::uint32_t flow_hash, IpMarks marks) {
  const auto wanted = static_cast<std::uint16_t>(first_port + (flow_hash & port_mask));
  // By what was wanted, not by what was got: a port that has become free since must not move a flow.
  std::size_t alike = 0;
  for (const Flow& flow : flows_) {
    if (flow.marks != marks) continue;
    if (flow.wanted == wanted) return flow.port;
    ++alike;
  }
  if (alike < sockets_max) return open_near(wanted, marks);
  std::size_t place = wanted % sockets_max;
  return std::find_if(flows_.begin(), flows_.end(),
                      [&](const Flow& flow) { return flow.marks == marks && place-- == 0; })
      ->port;
}

Result<std::uint16_t> FlowSockets::open_near(std::uint16_t wanted, IpMarks marks) {
  if (flows_.size() == all_sockets_max)
    return fail(Errc::resource_exhausted,
                "{} sockets send from {} already: too many different traffic classes and hop limits",
                all_sockets_max, to_string(address_));
  for (std::uint16_t i = 0; i < attempts_max; ++i) {
    const auto port = static_cast<std::uint16_t>(first_port + ((wanted + i) & port_mask));
    BEELINE_TRY(Descriptor socket, open_flow_socket(address_, port, scope_id_));
    if (!socket) continue;
    BEELINE_TRY_VOID(mark_what_leaves(socket, address_, marks));
    flows_.push_back({wanted, port, marks, std::move(socket)});
    return port;
  }
  return fail(Errc::resource_exhausted, "no free UDP source port on {} near {}: {} in a row are taken",
              to_string(address_), wanted, attempts_max);
}

int FlowSockets::descriptor(std::uint16_t port) const {
  for (const Flow& flow : flows_)
    if (flow.port == port) return flow.socket.get();
  return -1;
}

void FlowSockets::close_all() { flows_.clear(); }

}  // namespace beeline::port
