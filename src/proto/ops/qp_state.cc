#include "proto/ops/qp_state.h"

#include <bit>
#include <string>

namespace beeline::proto {
namespace {

struct AttributeName {
  std::uint32_t bit;
  std::string_view name;
};

constexpr AttributeName attribute_names[] = {
    {attr::state, "state"},
    {attr::current_state, "current state"},
    {attr::notify_drained, "drained notification"},
    {attr::access_flags, "access flags"},
    {attr::pkey_index, "P_Key index"},
    {attr::port, "port"},
    {attr::qkey, "Q_Key"},
    {attr::address_vector, "address vector"},
    {attr::path_mtu, "path MTU"},
    {attr::timeout, "timeout"},
    {attr::retry_count, "retry count"},
    {attr::rnr_retry, "RNR retry count"},
    {attr::rq_psn, "receive PSN"},
    {attr::max_rd_atomic, "max_rd_atomic"},
    {attr::min_rnr_timer, "minimum RNR timer"},
    {attr::sq_psn, "send PSN"},
    {attr::max_dest_rd_atomic, "max_dest_rd_atomic"},
    {attr::destination_qp, "destination QP"},
};

std::string list_attributes(std::uint32_t mask) {
  std::string text;
  const auto append = [&text](std::string_view word) {
    if (!text.empty()) text += ", ";
    text += word;
  };
  for (const auto& row : attribute_names) {
    if ((mask & row.bit) == 0) continue;
    append(row.name);
    mask &= ~row.bit;
  }
  if (mask != 0) append(fmt::format("unknown bits {:#x}", mask));
  return text;
}

struct Range {
  std::uint32_t bit;
  std::string_view name;
  std::uint32_t value;
  std::uint32_t limit;
};

}  // namespace

std::string_view name(QpState state) {
  constexpr std::array<std::string_view, qp_state_count> names = {"RESET", "INIT", "RTR", "RTS",
                                                                  "SQD",   "SQE",  "ERR"};
  return names[static_cast<std::size_t>(state)];
}

Result<void> check_transition(QpType type, QpState from, QpState to, std::uint32_t mask) {
  const Transition rule = transition(type, from, to);
  if (!rule.valid)
    return fail(Errc::invalid_argument, "queue pair cannot go from {} to {}", name(from), name(to));
  if (const std::uint32_t missing = rule.required & ~mask; missing != 0)
    return fail(Errc::invalid_argument, "queue pair from {} to {}: missing {}", name(from), name(to),
                list_attributes(missing));
  if (const std::uint32_t surplus = mask & ~(rule.required | rule.optional | attr::state); surplus != 0)
    return fail(Errc::invalid_argument, "queue pair from {} to {}: cannot change {} here", name(from),
                name(to), list_attributes(surplus));
  return {};
}

Result<void> check_values(const QpAttr& attributes, std::uint32_t mask) {
  const std::uint32_t mtu = attributes.path_mtu_bytes;
  if ((mask & attr::path_mtu) != 0 && (mtu < 256 || mtu > 4096 || !std::has_single_bit(mtu)))
    return fail(Errc::invalid_argument, "path MTU {} is not one of 256, 512, 1024, 2048, 4096", mtu);
  const Range ranges[] = {
      {attr::destination_qp, "destination QP", attributes.destination.value, 0xFFFFFF},
      {attr::rq_psn, "receive PSN", attributes.rq_psn.value, Psn::mask},
      {attr::sq_psn, "send PSN", attributes.sq_psn.value, Psn::mask},
      {attr::max_rd_atomic, "max_rd_atomic", attributes.max_rd_atomic, max_outstanding_reads},
      {attr::max_dest_rd_atomic, "max_dest_rd_atomic", attributes.max_dest_rd_atomic, max_outstanding_reads},
      {attr::min_rnr_timer, "minimum RNR timer", attributes.min_rnr_timer, 31},
      {attr::timeout, "timeout", attributes.timeout, 31},
      {attr::retry_count, "retry count", attributes.retry_count, 7},
      {attr::rnr_retry, "RNR retry count", attributes.rnr_retry, 7},
  };
  for (const auto& range : ranges)
    if ((mask & range.bit) != 0 && range.value > range.limit)
      return fail(Errc::invalid_argument, "{} is {}, at most {} is possible", range.name, range.value,
                  range.limit);
  return {};
}

void merge_attributes(QpAttr& into, const QpAttr& from, std::uint32_t mask) {
  const auto take = [mask](std::uint32_t bit, auto& to, const auto& value) {
    if ((mask & bit) != 0) to = value;
  };
  take(attr::access_flags, into.access, from.access);
  take(attr::qkey, into.qkey, from.qkey);
  take(attr::notify_drained, into.notify_drained, from.notify_drained);
  take(attr::path_mtu, into.path_mtu_bytes, from.path_mtu_bytes);
  take(attr::destination_qp, into.destination, from.destination);
  take(attr::rq_psn, into.rq_psn, from.rq_psn);
  take(attr::sq_psn, into.sq_psn, from.sq_psn);
  take(attr::max_rd_atomic, into.max_rd_atomic, from.max_rd_atomic);
  take(attr::max_dest_rd_atomic, into.max_dest_rd_atomic, from.max_dest_rd_atomic);
  take(attr::min_rnr_timer, into.min_rnr_timer, from.min_rnr_timer);
  take(attr::timeout, into.timeout, from.timeout);
  take(attr::retry_count, into.retry_count, from.retry_count);
  take(attr::rnr_retry, into.rnr_retry, from.rnr_retry);
}

}  // namespace beeline::proto
