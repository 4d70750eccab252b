#include <algorithm>
#include <array>

#include "doctor/log/recognise.h"
#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

struct Status {
  std::int64_t code;
  std::string_view symbol;  // of enum ibv_wc_status
  std::string_view words;   // of ibv_wc_status_str
  int syndrome;             // of a ConnectX completion, which UCX prints
  Kind kind;
};

constexpr Status statuses[] = {
    {1, "IBV_WC_LOC_LEN_ERR", "local length error", 0x01, Kind::completion_error},
    {2, "IBV_WC_LOC_QP_OP_ERR", "local QP operation error", 0x02, Kind::completion_error},
    {3, "IBV_WC_LOC_EEC_OP_ERR", "local EE context operation error", -1, Kind::completion_error},
    {4, "IBV_WC_LOC_PROT_ERR", "local protection error", 0x04, Kind::completion_4},
    {5, "IBV_WC_WR_FLUSH_ERR", "Work Request Flushed Error", 0x05, Kind::completion_5},
    {6, "IBV_WC_MW_BIND_ERR", "memory management operation error", 0x06, Kind::completion_error},
    {7, "IBV_WC_BAD_RESP_ERR", "bad response error", 0x10, Kind::completion_error},
    {8, "IBV_WC_LOC_ACCESS_ERR", "local access error", 0x11, Kind::completion_error},
    {9, "IBV_WC_REM_INV_REQ_ERR", "remote invalid request error", 0x12, Kind::completion_9},
    {10, "IBV_WC_REM_ACCESS_ERR", "remote access error", 0x13, Kind::completion_10},
    {11, "IBV_WC_REM_OP_ERR", "remote operation error", 0x14, Kind::completion_11},
    {12, "IBV_WC_RETRY_EXC_ERR", "transport retry counter exceeded", 0x15, Kind::completion_12},
    {13, "IBV_WC_RNR_RETRY_EXC_ERR", "RNR retry counter exceeded", 0x16, Kind::completion_13},
    {14, "IBV_WC_LOC_RDD_VIOL_ERR", "local RDD violation error", -1, Kind::completion_error},
    {15, "IBV_WC_REM_INV_RD_REQ_ERR", "remote invalid RD request", -1, Kind::completion_error},
    {16, "IBV_WC_REM_ABORT_ERR", "aborted error", 0x22, Kind::completion_error},
    {17, "IBV_WC_INV_EECN_ERR", "invalid EE context number", -1, Kind::completion_error},
    {18, "IBV_WC_INV_EEC_STATE_ERR", "invalid EE context state", -1, Kind::completion_error},
    {19, "IBV_WC_FATAL_ERR", "fatal error", -1, Kind::completion_error},
    {20, "IBV_WC_RESP_TIMEOUT_ERR", "response timeout error", -1, Kind::completion_error},
    {21, "IBV_WC_GENERAL_ERR", "general error", -1, Kind::completion_error},
};

const Status* status_of(std::int64_t code) {
  for (const Status& row : statuses)
    if (row.code == code) return &row;
  return nullptr;
}

bool set_status(Event& event, std::int64_t code) {
  if (status_of(code) == nullptr) return false;
  event.code = code;
  event.kind = kind_of_status(code);
  return true;
}

// A GID ends at a blank or a comma; NCCL prints "remoteGids" and the GID without a blank.
std::string gid_after(std::string_view text, std::string_view key) {
  // "local GID index 3, local GID fe80::…": the key may come before something else.
  for (auto at = find(text, key); at != text.npos; at = find(text, key, at + 1)) {
    const std::string_view gid = word(text.substr(at + key.size()));
    const bool like =
        std::all_of(gid.begin(), gid.end(), [](char c) { return is_hex(c) || c == ':' || c == '.'; });
    if (like && gid.find(':') != gid.npos) return std::string(gid);
  }
  return {};
}

void read_gids(std::string_view text, Event& event) {
  for (const std::string_view key : {"localGid ", "local GID "})
    if (event.local_gid.empty()) event.local_gid = gid_after(text, key);
  for (const std::string_view key : {"remoteGids ", "remoteGids", "remoteGid ", "remote GID "})
    if (event.remote_gid.empty()) event.remote_gid = gid_after(text, key);
}

// "mlx5_0:1", in "on dev mlx5_0:1", "hca mlx5_0", "on mlx5_0:1/RoCE", "NET/IB : mlx5_0:1 Got".
void read_device(std::string_view text, Event& event) {
  for (const std::string_view key : {" hca ", " on dev ", " on device ", " on "}) {
    std::string_view name = word_after(text, key);
    name = name.substr(0, name.find('/'));
    bool digit = false;
    for (const char c : name) digit = digit || is_digit(c);
    if (!digit || name.size() > 32 || is_digit(name.front())) continue;
    event.device = name;
    return;
  }
}

bool got_completion(const Line& line, std::string_view rest, Event& event) {
  if (const auto peer = after(rest, "from peer ")) event.peer = word(*peer);
  if (const auto at = rest.find('<'); !event.peer.empty() && at != rest.npos) {
    const auto end = rest.find('>', at);
    if (end != rest.npos && end - at < 8) event.peer += rest.substr(at, end - at + 1);
  }
  read_gids(rest, event);
  read_device(rest, event);
  auto status = after(rest, "status=");
  if (!status) status = after(rest, "status ");
  if (!status) status = after(rest, "with error ");
  if (!status) return false;
  auto code = number(*status);
  if (!code && status->find('(') != status->npos) code = number(status->substr(status->find('(') + 1));
  (void)line;
  return code && set_status(event, *code);
}

// Any other program's "status 12", if the line is about a completion.
bool some_status(const Line& line, std::string_view rest, Event& event) {
  const auto body = line.body;
  if (!has(body, "completion") && !has(body, "wc") && !has(body, "cqe") && !has(body, "poll_cq") &&
      !has(body, "vendor_err") && !has(body, "syndrom") && !has(body, "polling"))
    return false;
  if (has(body, "exit") || has(body, "http")) return false;
  while (!rest.empty() &&
         (rest.front() == ' ' || rest.front() == '=' || rest.front() == ':' || rest.front() == '('))
    rest.remove_prefix(1);
  if (starts(rest, "number ")) rest.remove_prefix(7);
  std::string_view digits = rest;
  auto code = number(digits);
  if (!code) return false;
  while (!digits.empty() && is_digit(digits.front())) digits.remove_prefix(1);
  if (!digits.empty() && (is_letter(digits.front()) || digits.front() == '.')) return false;
  read_device(body, event);
  read_gids(body, event);
  return set_status(event, *code);
}

bool status_symbol(const Line& line, std::string_view, Event& event) {
  for (const Status& row : statuses) {
    const auto at = find(line.body, row.symbol);
    if (at == line.body.npos) continue;
    read_device(line.body, event);
    return set_status(event, row.code);
  }
  return false;
}

// The words of a status, where the line speaks of an error and not of a setting.
bool status_words(const Line& line, std::string_view, Event& event) {
  const auto body = line.body;
  if (starts(trimmed(body), "HINT") || has(body, "HINT:")) return false;
  if (!has(body, "complet") && !has(body, "fail") && !has(body, "wc") && !has(body, "error") &&
      !has(body, "cqe"))
    return false;
  for (const Status& row : statuses) {
    if (row.code == 19 || row.code == 21 || row.code == 16 || !has(body, row.words)) continue;
    read_device(body, event);
    read_gids(body, event);
    return set_status(event, row.code);
  }
  return false;
}

// UCX: "Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)".
bool ucx_syndrome(const Line& line, std::string_view rest, Event& event) {
  const auto code = hex(rest);
  if (!code) return false;
  for (const Status& row : statuses) {
    if (row.syndrome < 0 || static_cast<std::uint64_t>(row.syndrome) != *code) continue;
    const std::string_view front = line.body.substr(0, line.body.size() - rest.size());
    read_device(front, event);
    return set_status(event, row.code);
  }
  return false;
}

bool ucx_words(const Line& line, std::string_view rest, Event& event) {
  read_device(line.body, event);
  (void)rest;
  return set_status(event, has(line.body, "Transport retry count exceeded") ? 12 : 13);
}

bool openib_retry(const Line&, std::string_view, Event& event) { return set_status(event, 12); }

struct Errno {
  std::string_view words;
  std::int64_t code;
};
constexpr Errno errnos[] = {
    {"Connection timed out", 110}, {"Network is unreachable", 101}, {"No such device", 19},
    {"Invalid argument", 22},      {"No route to host", 113},       {"Cannot allocate memory", 12},
    {"Bad address", 14},           {"Permission denied", 13},       {"Operation not permitted", 1}};

std::int64_t errno_in(std::string_view text) {
  for (const Errno& row : errnos)
    if (has(text, row.words)) return row.code;
  for (const std::string_view key : {"errno: ", "errno ", "errno=", "failed with ", "error "})
    if (const auto code = number_after(text, key)) return *code;
  return -1;
}

bool modify_qp(const Line& line, std::string_view rest, Event& event) {
  const auto body = line.body;
  if (!has(body, "fail") && !has(body, "error") && !has(body, "unable")) return false;
  if (!has(body, "qp")) return false;
  (void)rest;
  read_gids(body, event);
  read_device(body, event);
  event.code = errno_in(body);
  switch (event.code) {
    case 110:
      event.kind = Kind::modify_qp_110;
      break;
    case 101:
      event.kind = Kind::modify_qp_101;
      break;
    case 19:
      event.kind = Kind::modify_qp_19;
      break;
    case 22:
      event.kind = Kind::modify_qp_22;
      break;
    case 12:
      event.kind = Kind::mr_no_memory;
      break;
    default:
      event.kind = Kind::modify_qp;
  }
  return true;
}

bool verbs_object(const Line& line, std::string_view, Event& event) {
  const auto body = line.body;
  if (!has(body, "fail") && !has(body, "error") && !has(body, "unable")) return false;
  event.code = errno_in(body);
  read_device(body, event);
  if (event.code == 12) {
    event.kind = Kind::mr_no_memory;
  } else if (event.code == 14) {
    event.kind = Kind::mr_bad_address;
  } else if (has(body, "open_device")) {
    event.kind = Kind::device_unopenable;
  } else {
    return false;
  }
  return true;
}

bool cannot_allocate(const Line& line, std::string_view, Event& event) {
  const auto body = line.body;
  for (const std::string_view about : {"ibv_", "reg_mr", "register", "mlx5", "verbs", "memlock", "rdma",
                                       "ib_md", "create_cq", "create_qp"}) {
    if (!has(body, about)) continue;
    event.code = 12;
    return true;
  }
  return false;
}

bool allocate_mr(const Line& line, std::string_view, Event& event) {
  if (has(line.body, "Bad address")) event.kind = Kind::mr_bad_address;
  return true;
}

bool async_event(const Line& line, std::string_view rest, Event& event) {
  const auto body = line.body;
  read_device(rest, event);
  if (event.device.empty()) {
    const std::string_view name = word_after(body, "NET/IB : ");
    if (name.find(':') != name.npos || starts(name, "mlx5")) event.device = name;
  }
  event.detail = trimmed(rest);
  if (has(body, "port error") || has(body, "PORT_ERR")) {
    event.kind = Kind::port_error;
  } else if (has(body, "local catastrophic error") || has(body, "DEVICE_FATAL")) {
    event.kind = Kind::device_fatal;
  } else if (has(body, "access violation") || has(body, "invalid request local work queue")) {
    event.kind = Kind::access_violation;
  } else if (has(body, "port active") || has(body, "PORT_ACTIVE")) {
    event.kind = Kind::fact_port_up;
  } else {
    return false;
  }
  return true;
}

bool always(const Line&, std::string_view, Event&) { return true; }

bool gid_query(const Line& line, std::string_view, Event&) {
  return has(line.body, "fail") && !has(line.body, "DEBUG") && !has(line.body, "DIAG");
}

constexpr Recogniser table[] = {
    {"Got completion", Kind::count_, got_completion},
    {"(synd 0x", Kind::count_, ucx_syndrome},
    {"IBV_WC_", Kind::count_, status_symbol},
    {"status", Kind::count_, some_status},
    {"transport retry counter", Kind::count_, status_words},
    {"rnr retry counter", Kind::count_, status_words},
    {"local protection error", Kind::count_, status_words},
    {"remote access error", Kind::count_, status_words},
    {"remote operation error", Kind::count_, status_words},
    {"remote invalid request error", Kind::count_, status_words},
    {"work request flushed", Kind::count_, status_words},
    {"local length error", Kind::count_, status_words},
    {"local QP operation error", Kind::count_, status_words},
    {"Transport retry count exceeded", Kind::count_, ucx_words},
    {"no-ready retry count exceeded", Kind::count_, ucx_words},
    {"retry count between two MPI processes has been exceeded", Kind::count_, openib_retry},
    {"ibv_modify_qp", Kind::count_, modify_qp},
    {"modify QP", Kind::count_, modify_qp},
    {"modifying QP", Kind::count_, modify_qp},
    {"Unable to Connect the HCA", Kind::modify_qp, always},
    {"ibv_reg_", Kind::count_, verbs_object},
    {"ibv_create_", Kind::count_, verbs_object},
    {"ibv_open_device", Kind::count_, verbs_object},
    {"ibv_alloc_", Kind::count_, verbs_object},
    {"mlx5dv_create_", Kind::count_, verbs_object},
    {"Couldn't allocate MR", Kind::mr_no_memory, allocate_mr},
    {"failed to create mr", Kind::mr_no_memory, allocate_mr},
    {"trying to allocate some locked memory", Kind::mr_no_memory, always},
    {"Cannot allocate memory", Kind::mr_no_memory, cannot_allocate},
    {"RLIMIT_MEMLOCK", Kind::fact_memlock, always},
    {"max locked memory", Kind::fact_memlock, always},
    {"only allow registering part of your physical memory", Kind::fact_memlock, always},
    {"async event", Kind::count_, async_event},
    {"async fatal event", Kind::count_, async_event},
    {"IBV_EVENT_", Kind::count_, async_event},
    {"ncclIbRoceGetVersionNum", Kind::gid_unreadable, gid_query},
    {"ibv_query_gid", Kind::gid_unreadable, gid_query},
};

}  // namespace

std::span<const Recogniser> verbs_recognisers() { return table; }

std::string_view status_in_words(std::int64_t status) {
  const Status* const row = status_of(status);
  return row == nullptr ? std::string_view{} : row->words;
}

Kind kind_of_status(std::int64_t status) {
  const Status* const row = status_of(status);
  return row == nullptr ? Kind::completion_error : row->kind;
}

}  // namespace beeline::doctor::log
