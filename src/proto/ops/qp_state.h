// The state machine of an RC queue pair as a table: which transitions exist, and which
// attributes each one requires and allows. It is the table that Linux applies to
// ibv_modify_qp, so that programs find the rules they know (states: IBTA vol. 1, figure 124).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "proto/queue_pair.h"
#include "proto/types.h"

namespace beeline::proto {

inline constexpr std::size_t qp_state_count = 7;
inline constexpr std::array<QpState, qp_state_count> all_qp_states = {
    QpState::reset, QpState::init, QpState::rtr, QpState::rts, QpState::sqd, QpState::sqe, QpState::err};

struct Transition {
  bool valid = false;
  std::uint32_t required = 0;  // attribute mask bits
  std::uint32_t optional = 0;
};

namespace detail {

inline constexpr std::uint32_t to_init = attr::pkey_index | attr::port | attr::access_flags;
inline constexpr std::uint32_t to_rtr = attr::address_vector | attr::path_mtu | attr::destination_qp |
                                        attr::rq_psn | attr::max_dest_rd_atomic | attr::min_rnr_timer;
inline constexpr std::uint32_t to_rts =
    attr::timeout | attr::retry_count | attr::rnr_retry | attr::sq_psn | attr::max_rd_atomic;
inline constexpr std::uint32_t while_connected =
    attr::current_state | attr::access_flags | attr::min_rnr_timer;
inline constexpr Transition no{};
inline constexpr Transition yes{true, 0, 0};

// Row: from; column: to, both in the order of QpState. SQE is a state of UC and UD: an RC
// queue pair never enters it, and leaves it only for RESET or ERR.
inline constexpr std::array<std::array<Transition, qp_state_count>, qp_state_count> transitions = {{
    //          reset init                  rtr                                                    rts sqd sqe
    //          err
    /*reset*/ {{yes, {true, to_init, 0}, no, no, no, no, no}},
    /*init*/
    {{yes, {true, 0, to_init}, {true, to_rtr, attr::access_flags | attr::pkey_index}, no, no, no, yes}},
    /*rtr*/ {{yes, no, no, {true, to_rts, while_connected}, no, no, yes}},
    /*rts*/ {{yes, no, no, {true, 0, while_connected}, no, no, yes}},
    /*sqd*/ {{yes, no, no, no, no, no, yes}},
    /*sqe*/ {{yes, no, no, no, no, no, yes}},
    /*err*/ {{yes, no, no, no, no, no, yes}},
}};

}  // namespace detail

constexpr Transition transition(QpState from, QpState to) {
  return detail::transitions[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

std::string_view name(QpState state);

// Checks a modify against the table; the error names the states and the attributes that
// are missing or out of place.
Result<void> check_transition(QpState from, QpState to, std::uint32_t mask);

// Checks the values that `mask` says are meant.
Result<void> check_values(const QpAttr& attributes, std::uint32_t mask);

// Copies the attributes in `mask` (all but the state).
void merge_attributes(QpAttr& into, const QpAttr& from, std::uint32_t mask);

}  // namespace beeline::proto
