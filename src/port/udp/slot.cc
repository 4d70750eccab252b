#include "port/udp/slot.h"

#include <fmt/format.h>

#include <cerrno>

namespace beeline::port {

SlotName::SlotName(Slot slot) : AbstractName(fmt::format("beeline.4791.{}", slot.value)) {}

Result<ClaimedSlot> claim_slot() {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "cannot make a Unix socket for a slot");
  for (int number = 0; number < slot_count; ++number) {
    const Slot slot{static_cast<std::uint8_t>(number)};
    const SlotName name(slot);
    if (::bind(socket.get(), name.get(), name.length) == 0) {
      if (::listen(socket.get(), slot_count) != 0) return fail_errno(errno, "cannot listen on a slot");
      return ClaimedSlot{slot, std::move(socket)};
    }
    if (errno != EADDRINUSE) return fail_errno(errno, "cannot bind the Unix socket of a slot");
  }
  return fail(Errc::resource_exhausted,
              "all {} slots of this host are taken: so many processes at most can use Beeline at once in one "
              "network namespace; end some (see @beeline.4791.* in /proc/net/unix)",
              slot_count);
}

}  // namespace beeline::port
