// States of a connection, and what a message means in each: one table (IBTA vol. 1, 12.9.7, figures 135 and
// 136; the MRA states differ from their neighbours only in a timer and are not told apart).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/cm/messages.h"

namespace beeline::proto::cm {

enum class State : std::uint8_t {
  req_sent,
  req_received,  // the user thinks
  rep_sent,
  rep_received,  // the user thinks
  established,
  dreq_sent,
  dreq_received,  // until the user disconnects, too
  timewait,
  sidr_req_sent,
  sidr_req_received,  // the user thinks
};
inline constexpr std::size_t state_count = 10;
std::string_view name(State state);

enum class Action : std::uint8_t {
  ignore,
  repeat,           // our last message again: the peer has not got it
  say_thinking,     // MRA
  wait_longer,      // the peer thinks
  take_reply,       // REP: up to the user
  take_reject,      // REJ: the end
  become_ready,     // RTU
  take_disconnect,  // DREQ: up to the user
  agree_at_once,    // DREQ, and we sent one too
  finish,           // DREP
  take_service,     // SIDR_REP
};

// Of the message with this index in wire::cm::Message. REQ and SIDR_REQ that have no connection yet make one
// and do not come here.
Action action_of(State state, std::size_t message_index);

}  // namespace beeline::proto::cm
