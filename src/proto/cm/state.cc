#include "proto/cm/state.h"

#include <variant>

namespace beeline::proto::cm {
namespace {

using enum Action;
constexpr std::size_t message_count = std::variant_size_v<wire::cm::Message>;

// clang-format off
constexpr std::array<std::array<Action, message_count>, state_count> table = {{
    //                  REQ           MRA          REJ          REP           RTU           DREQ             DREP    SIDR_REQ SIDR_REP
    /* req_sent      */ {ignore,       wait_longer, take_reject, take_reply,   ignore,       ignore,          ignore, ignore,  ignore},
    /* req_received  */ {say_thinking, ignore,      take_reject, ignore,       ignore,       ignore,          ignore, ignore,  ignore},
    /* rep_sent      */ {repeat,       wait_longer, take_reject, ignore,       become_ready, take_disconnect, ignore, ignore,  ignore},
    /* rep_received  */ {ignore,       ignore,      take_reject, say_thinking, ignore,       take_disconnect, ignore, ignore,  ignore},
    /* established   */ {ignore,       ignore,      ignore,      repeat,       ignore,       take_disconnect, ignore, ignore,  ignore},
    /* dreq_sent     */ {ignore,       ignore,      finish,      ignore,       ignore,       agree_at_once,   finish, ignore,  ignore},
    /* dreq_received */ {ignore,       ignore,      ignore,      ignore,       ignore,       ignore,          ignore, ignore,  ignore},
    /* timewait      */ {ignore,       ignore,      ignore,      ignore,       ignore,       repeat,          ignore, ignore,  ignore},
    /* sidr_req_sent */ {ignore,       ignore,      ignore,      ignore,       ignore,       ignore,          ignore, ignore,  take_service},
    /* sidr_received */ {ignore,       ignore,      ignore,      ignore,       ignore,       ignore,          ignore, ignore,  ignore},
}};
// clang-format on

constexpr std::array<std::string_view, state_count> names = {
    "REQ sent",  "REQ received",  "REP sent", "REP received",  "established",
    "DREQ sent", "DREQ received", "timewait", "SIDR_REQ sent", "SIDR_REQ received"};

}  // namespace

Action action_of(State state, std::size_t message_index) {
  return table[static_cast<std::size_t>(state)][message_index];
}

std::string_view name(State state) { return names[static_cast<std::size_t>(state)]; }

}  // namespace beeline::proto::cm
