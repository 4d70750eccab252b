// The state machine of queue pairs as a table: which transitions exist, and which attributes
// each one requires and allows, per type of queue pair. It is the table that Linux applies to
// ibv_modify_qp (qp_state_table in drivers/infiniband/core/verbs.c), so that programs find the
// rules they know; alternate paths are absent, since this card has none. States: IBTA vol. 1,
// figure 124.
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
inline constexpr std::size_t qp_type_count = 3;
inline constexpr std::array<QpType, qp_type_count> all_qp_types = {QpType::rc, QpType::uc, QpType::ud};

struct Transition {
  bool valid = false;
  std::uint32_t required = 0;  // attribute mask bits
  std::uint32_t optional = 0;
};

namespace detail {

struct Masks {
  std::uint32_t required = 0;
  std::uint32_t optional = 0;
};

// One row per transition, with a pair of masks per type.
struct TransitionRow {
  QpState from, to;
  Masks rc, uc, ud;
};

// clang-format off
inline constexpr std::uint32_t
    bind_rc_uc = attr::pkey_index | attr::port | attr::access_flags,
    bind_ud = attr::pkey_index | attr::port | attr::qkey,
    peer_uc = attr::address_vector | attr::path_mtu | attr::destination_qp | attr::rq_psn,
    peer_rc = peer_uc | attr::max_dest_rd_atomic | attr::min_rnr_timer,
    send_rc = attr::timeout | attr::retry_count | attr::rnr_retry | attr::sq_psn | attr::max_rd_atomic,
    ready_uc = attr::current_state | attr::access_flags,
    ready_rc = ready_uc | attr::min_rnr_timer,
    ready_ud = attr::current_state | attr::qkey,
    drained_uc = attr::address_vector | attr::access_flags | attr::pkey_index,
    drained_rc = drained_uc | attr::port | attr::timeout | attr::retry_count | attr::rnr_retry |
                 attr::max_rd_atomic | attr::max_dest_rd_atomic | attr::min_rnr_timer,
    drained_ud = attr::pkey_index | attr::qkey;
inline constexpr Masks drain{0, attr::notify_drained};

inline constexpr TransitionRow transition_rows[] = {
    {QpState::reset, QpState::reset, {}, {}, {}},
    {QpState::reset, QpState::init, {bind_rc_uc, 0}, {bind_rc_uc, 0}, {bind_ud, 0}},
    {QpState::init, QpState::init, {0, bind_rc_uc}, {0, bind_rc_uc}, {0, bind_ud}},
    {QpState::init, QpState::rtr, {peer_rc, attr::access_flags | attr::pkey_index},
                                  {peer_uc, attr::access_flags | attr::pkey_index},
                                  {0, attr::pkey_index | attr::qkey}},
    {QpState::rtr, QpState::rts, {send_rc, ready_rc}, {attr::sq_psn, ready_uc}, {attr::sq_psn, ready_ud}},
    {QpState::rts, QpState::rts, {0, ready_rc}, {0, ready_uc}, {0, ready_ud}},
    {QpState::rts, QpState::sqd, drain, drain, drain},
    {QpState::sqd, QpState::rts, {0, ready_rc}, {0, ready_uc}, {0, ready_ud}},
    {QpState::sqd, QpState::sqd, {0, drained_rc}, {0, drained_uc}, {0, drained_ud}},
    {QpState::sqe, QpState::rts, {}, {0, ready_uc}, {0, ready_ud}},
};
// clang-format on

// Every state may be left for RESET, and every one but RESET for ERR.
constexpr Transition find_transition(QpType type, QpState from, QpState to) {
  for (const TransitionRow& row : transition_rows) {
    if (row.from != from || row.to != to) continue;
    const Masks& masks = type == QpType::rc ? row.rc : type == QpType::uc ? row.uc : row.ud;
    return {true, masks.required, masks.optional};
  }
  return {to == QpState::reset || (to == QpState::err && from != QpState::reset), 0, 0};
}

inline constexpr auto transitions = [] {
  std::array<std::array<std::array<Transition, qp_state_count>, qp_state_count>, qp_type_count> table{};
  for (const QpType type : all_qp_types)
    for (const QpState from : all_qp_states)
      for (const QpState to : all_qp_states)
        table[static_cast<std::size_t>(type)][static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] =
            find_transition(type, from, to);
  return table;
}();

}  // namespace detail

constexpr Transition transition(QpType type, QpState from, QpState to) {
  return detail::transitions[static_cast<std::size_t>(type)][static_cast<std::size_t>(from)]
                            [static_cast<std::size_t>(to)];
}

std::string_view name(QpState state);

// Checks a modify against the table; the error names the states and the attributes that
// are missing or out of place.
Result<void> check_transition(QpType type, QpState from, QpState to, std::uint32_t mask);

// Checks the values that `mask` says are meant.
Result<void> check_values(const QpAttr& attributes, std::uint32_t mask);

// Copies the attributes in `mask` (all but the state).
void merge_attributes(QpAttr& into, const QpAttr& from, std::uint32_t mask);

}  // namespace beeline::proto
