#include "nic/describe.h"

#include <utility>

namespace beeline::nic {

bool has_moved_anything(const CardCounters& counters) {
  return counters.received + counters.sent + counters.local_payload_sent + counters.local_payload_received !=
         0;
}

std::string describe(const CardCounters& counters, const port::PortCounters& port) {
  std::string text = fmt::format("{} packets received ({} bytes), {} sent ({} bytes)", counters.received,
                                 counters.wire_payload_received, counters.sent, counters.wire_payload_sent);
  if (port.trains_sent != 0)
    text += fmt::format("; {} of those sent left in {} trains", port.packets_in_trains, port.trains_sent);
  if (counters.local_payload_sent + counters.local_payload_received != 0)
    text += fmt::format("; through shared memory {} bytes received, {} sent", counters.local_payload_received,
                        counters.local_payload_sent);
  for (const auto& [what, count] :
       {std::pair("with a wrong ICRC", counters.icrc_bad), std::pair("malformed", counters.malformed),
        std::pair("for no queue pair here", counters.no_queue_pair),
        std::pair("not from the queue pair's peer", counters.wrong_peer),
        std::pair("not sent, the memory could not be read", counters.send_faults),
        std::pair("put off, the socket was full", counters.send_no_room),
        std::pair("trains refused by the kernel, and sent packet by packet", port.trains_refused)})
    if (count != 0) text += fmt::format("; {} {}", count, what);
  return text;
}

}  // namespace beeline::nic
