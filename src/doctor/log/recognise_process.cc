#include <algorithm>

#include "doctor/log/recognise.h"
#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

bool always(const Line&, std::string_view, Event&) { return true; }

// c10 writes its level as "[W1130 06:33:17" or "[W socket.cpp:601]": what is tried again is a warning.
bool is_torch_warning(const Line& line) {
  const auto at = line.whole.find("[W");
  return at != line.whole.npos && at + 2 < line.whole.size() &&
         (is_digit(line.whole[at + 2]) || line.whole[at + 2] == ' ') && !line.nccl;
}

bool is_web(std::string_view body) {
  for (const std::string_view about :
       {"http", "urllib", "wandb", "huggingface", "requests.", "proxy", "s3.", "ssl", "git"})
    if (has(body, about)) return true;
  return false;
}

// "… from 10.0.0.7<45678>", "remote peer node7<4>", "peer [10.0.0.7]:1234".
std::string peer_in(std::string_view text) {
  for (const std::string_view key :
       {"from peer ", "remote peer ", "from ", "peer [", "connect to ", "Connect to ", "to "}) {
    const auto rest = after(text, key);
    if (!rest) continue;
    const std::string_view name = word(*rest);
    const bool like = std::any_of(name.begin(), name.end(), is_digit) || name.find('.') != name.npos;
    if (like) return std::string(name.substr(0, 80));
  }
  return {};
}

bool closed(const Line& line, std::string_view rest, Event& event) {
  if (is_torch_warning(line) || is_web(line.body)) return false;
  event.peer = peer_in(rest);
  if (event.peer.empty()) event.peer = peer_in(line.body);
  return true;
}

bool reset(const Line& line, std::string_view rest, Event& event) {
  const auto body = line.body;
  for (const std::string_view about : {"NCCL", "gloo", "c10d", "TCPStore", "socket.c", "sendBytes",
                                       "recvValue", "UCX", "btl_tcp", "tcp_endpoint", "tcp_peer"})
    if (has(body, about)) return closed(line, rest, event);
  return false;
}

bool closed_store(const Line& line, std::string_view rest, Event& event) {
  return (has(line.body, "store") || has(line.body, "c10d") || has(line.body, "remote server")) &&
         closed(line, rest, event);
}

bool connect(const Line& line, std::string_view rest, Event& event) {
  const auto body = line.body;
  if (is_torch_warning(line) || is_web(body) || has(body, "retrying")) return false;
  bool failed = false;
  for (const std::string_view words :
       {"Connection refused", "No route to host", "timed out", "failed", "unreachable", "couldn't"})
    failed = failed || has(body, words);
  if (!failed) return false;
  event.peer = word(rest);
  if (event.peer.empty() || event.peer.find('/') != event.peer.npos) event.peer = peer_in(body);
  return !event.peer.empty() || line.nccl || has(body, "Call to connect");
}

bool perftest_connect(const Line&, std::string_view rest, Event& event) {
  event.peer = word(rest);
  return true;
}

bool listen(const Line& line, std::string_view, Event&) {
  return !is_torch_warning(line) &&
         (has(line.body, "store") || has(line.body, "server socket") || has(line.body, "29500"));
}

bool resolution(const Line& line, std::string_view, Event& event) {
  if (is_web(line.body) || is_torch_warning(line)) return false;
  event.peer = peer_in(line.body);
  return true;
}

// "[Rank 3]", "[PG ID 0 PG GUID 0(default_pg) Rank 3]": of the group, which for the default one is the job's.
void group_rank(const Line& line, Event& event) {
  if (!line.rank.empty()) return;
  if (const auto rank = number_after(line.body, "Rank "); rank && *rank >= 0)
    event.rank = std::to_string(*rank);
}

bool watchdog(const Line& line, std::string_view, Event& event) {
  const auto body = line.body;
  if (has(body, "terminated with exception")) event.detail = "abort";
  group_rank(line, event);
  event.sequence = number_after(body, "SeqNum=").value_or(-1);
  event.elements = number_after(body, "NumelIn=").value_or(-1);
  event.timeout_ms = number_after(body, "Timeout(ms)=").value_or(-1);
  const std::string_view op = word_after(body, "OpType=");
  event.detail = op;
  // Cut off in the middle: "…WorkNCCL(SeqNum=5, OpType=ALLR".
  return true;
}

bool last_work(const Line& line, std::string_view, Event& event) {
  const auto body = line.body;
  group_rank(line, event);
  for (const std::string_view key : {"last enqueued NCCL work: ", "last enqueued work: "})
    if (const auto work = number_after(body, key)) event.enqueued = *work;
  for (const std::string_view key : {"last completed NCCL work: ", "last completed work: "})
    if (const auto work = number_after(body, key)) event.completed = *work;
  return event.enqueued >= 0 && event.completed >= 0;
}

bool gloo_timeout(const Line&, std::string_view rest, Event&) {
  return has(rest, "ms for") || has(rest, "ms");
}

bool barrier(const Line& line, std::string_view, Event& event) {
  if (!has(line.body, "failed to pass") && !has(line.body, "timed out") && !has(line.body, "failed"))
    return false;
  for (const std::string_view key : {"Ranks ", "]: Rank "}) {
    const auto ranks = after(line.body, key);
    if (!ranks) continue;
    event.detail = trimmed(ranks->substr(0, std::min(find(*ranks, "failed"), ranks->size())));
    break;
  }
  return true;
}

// 0 for what is no end by itself: a signal from the launcher, an abort after an error.
Kind kind_of_exit(std::int64_t code) {
  switch (code) {
    case -9:
    case 137:
      return Kind::process_killed;
    case -11:
    case 139:
    case -7:
    case 135:
    case -8:
    case 136:
    case -4:
    case 132:
      return Kind::process_crashed;
    case -15:
    case 143:
    case 0:
    case -2:
    case 130:
      return Kind::fact_exit;
    default:
      return Kind::process_failed;
  }
}

// "failed (exitcode: -9) local_rank: 3 (pid: 812917) of binary: …".
bool elastic_exit(const Line& line, std::string_view rest, Event& event) {
  const auto code = number(rest);
  if (!code || !has(line.body, "local_rank")) return false;
  event.code = *code;
  if (const auto pid = number_after(rest, "(pid: ")) event.pid = std::to_string(*pid);
  if (const auto local = number_after(rest, "local_rank: ")) event.detail = std::to_string(*local);
  event.kind = kind_of_exit(*code);
  return true;
}

// mpirun: "process rank 3 with PID 1234 on node node07 exited on signal 9 (Killed)".
bool mpirun_exit(const Line& line, std::string_view rest, Event& event) {
  const auto body = line.body;
  const auto code = number(rest);
  if (!code) return false;
  const auto rank = number_after(body, "process rank ");
  if (rank) event.rank = std::to_string(*rank);
  if (const auto pid = number_after(body, "with PID ")) event.pid = std::to_string(*pid);
  event.host = word_after(body, " on node ");
  event.code = -*code;
  event.kind = kind_of_exit(event.code);
  return rank.has_value() || !event.host.empty();
}

bool mpirun_code(const Line& line, std::string_view rest, Event& event) {
  const auto code = number(rest);
  if (!code || *code == 0 || !has(line.body, "Exit code")) return false;
  event.code = *code;
  event.kind = kind_of_exit(*code);
  return true;
}

// srun: "error: node7: task 3: Killed", "error: node07: tasks 8-15: Exited with exit code 1".
bool srun_task(const Line& line, std::string_view rest, Event& event) {
  const auto body = line.body;
  if (!has(body, "srun: error:")) return false;
  event.host = word_after(body, "srun: error: ");
  while (!event.host.empty() && event.host.back() == ':') event.host.pop_back();
  const std::string_view tasks = rest.substr(0, rest.find(':'));
  if (std::all_of(tasks.begin(), tasks.end(), is_digit)) event.rank = tasks;
  if (has(rest, "Killed") || has(rest, "Out Of Memory")) {
    event.code = -9;
  } else if (has(rest, "Segmentation") || has(rest, "Bus error") || has(rest, "Aborted")) {
    event.code = has(rest, "Aborted") ? -6 : -11;
  } else if (const auto code = number_after(rest, "exit code ")) {
    event.code = *code;
  } else {
    return false;
  }
  event.kind = kind_of_exit(event.code);
  return true;
}

bool crash(const Line& line, std::string_view rest, Event& event) {
  (void)line;
  if (const auto code = number(rest)) event.code = -*code;
  return !has(rest, "handler");
}

bool caught_signal(const Line&, std::string_view rest, Event& event) {
  const auto code = number(rest);
  if (!code || (*code != 11 && *code != 7 && *code != 8 && *code != 4)) return false;
  event.code = -*code;
  return true;
}

bool worker_killed(const Line& line, std::string_view rest, Event& event) {
  if (has(line.body, "Bus error") || has(line.body, "shared memory")) {
    event.kind = Kind::shm_full;
  } else if (has(rest, "Killed")) {
    event.code = -9;
  } else {
    event.kind = Kind::process_crashed;
  }
  return has(line.body, "DataLoader worker");
}

bool cancelled(const Line& line, std::string_view, Event& event) {
  for (const std::string_view reason : {"DUE TO TIME LIMIT", "DUE TO PREEMPTION", "DUE TO NODE"})
    if (const auto at = find(line.body, reason); at != line.body.npos)
      event.detail = line.body.substr(at, 40);
  if (const std::string_view host = word_after(line.body, " ON "); !host.empty()) event.host = host;
  return has(line.body, "STEP") || has(line.body, "JOB") || has(line.body, "slurm") || has(line.body, "srun");
}

// The last line of a traceback: "module.SomeError: message", at the start of what the program says.
bool exception(const Line& line, std::string_view rest, Event& event) {
  const auto body = trimmed(line.body);
  const std::size_t end = std::min(body.find(':'), body.size());
  const std::string_view name = body.substr(0, end);
  for (const char c : name)
    if (!is_letter(c) && !is_digit(c) && c != '.' && c != '_') return false;
  if (name.size() < 6 || name.size() > 80 || rest.size() > body.size()) return false;
  const bool bare = name == "Error" || name == "ERROR";
  if (bare || name.substr(name.size() - 5) != "Error") return false;
  event.detail = name;
  return !has(body, "NCCL") && !has(name, "DistBackend") && !has(body, "SignalException") &&
         !has(name, "ChildFailed");
}

bool out_of_memory(const Line& line, std::string_view, Event&) {
  return has(line.body, "CUDA") || has(line.body, "GPU") || has(line.body, "HIP");
}

bool cuda_failure(const Line& line, std::string_view rest, Event& event) {
  if (has(line.body, "out of memory")) event.kind = Kind::cuda_oom;
  if (const auto code = number(rest)) event.code = *code;
  return !has(line.body, "initialization error") || line.nccl;
}

bool no_space(const Line& line, std::string_view, Event&) {
  return has(line.body, "/dev/shm") || has(line.body, "shared memory") || has(line.body, "/torch_");
}

bool training(const Line& line, std::string_view rest, Event&) {
  if (line.nccl || line.kernel || has(line.body, "packet") || has(line.body, "NCCL") ||
      has(line.body, "rror"))
    return false;
  return std::any_of(rest.begin(), rest.end(), is_digit) ||
         std::any_of(line.body.begin(), line.body.end(), is_digit);
}

bool aborted(const Line& line, std::string_view, Event& event) {
  group_rank(line, event);
  return true;
}

bool clients(const Line& line, std::string_view, Event&) { return has(line.body, "timed out"); }

bool keys(const Line& line, std::string_view rest, Event&) {
  return has(rest, "keys") || has(line.body, "store");
}

constexpr Recogniser table[] = {
    {"caught collective operation timeout", Kind::watchdog_timeout, watchdog},
    {"last enqueued", Kind::fact_last_work, last_work},
    {"Timed out waiting ", Kind::watchdog_timeout, gloo_timeout},
    {"watchdog got stuck", Kind::watchdog_stuck, always},
    {"Heartbeat monitor timed out", Kind::watchdog_stuck, always},
    {"Detected mismatch between collectives", Kind::collective_mismatch, always},
    {"Mismatch between collective", Kind::collective_mismatch, always},
    {"monitoredBarrier", Kind::barrier_timeout, barrier},
    {"waiting for clients", Kind::store_timeout, clients},
    {"wait timeout after", Kind::store_timeout, keys},
    {"RendezvousTimeoutError", Kind::store_timeout, always},
    {"closed by remote peer", Kind::connection_closed, closed},
    {"closed by peer", Kind::connection_closed, closed},
    {"reset by peer", Kind::connection_closed, reset},
    {"Broken pipe", Kind::connection_closed, reset},
    {"Socket closed", Kind::connection_closed, reset},
    {"Did the remote server shutdown", Kind::connection_closed, closed_store},
    {"Couldn't read remote address", Kind::connection_closed, always},
    {"exchange data between server and clients", Kind::connection_closed, always},
    {"connect to ", Kind::bootstrap_connect, connect},
    {"Couldn't connect to ", Kind::bootstrap_connect, perftest_connect},
    {"The client socket has timed out", Kind::bootstrap_connect, connect},
    {"Connect timeout ", Kind::bootstrap_connect, connect},
    {"connectFullMesh failed", Kind::bootstrap_connect, always},
    {"Address already in use", Kind::bootstrap_connect, listen},
    {"failed to listen on any local network address", Kind::bootstrap_connect, listen},
    {"Name or service not known", Kind::name_resolution, resolution},
    {"failure in name resolution", Kind::name_resolution, resolution},
    {"Could not resolve hostname", Kind::name_resolution, resolution},
    {"(exitcode: ", Kind::count_, elastic_exit},
    {"exited on signal ", Kind::count_, mpirun_exit},
    {"Exit code: ", Kind::count_, mpirun_code},
    {" task ", Kind::count_, srun_task},
    {" tasks ", Kind::count_, srun_task},
    {"Caught signal ", Kind::process_crashed, caught_signal},
    {"Segmentation fault (core dumped)", Kind::process_crashed, crash},
    {"Fatal Python error: Segmentation", Kind::process_crashed, crash},
    {"is killed by signal: ", Kind::process_killed, worker_killed},
    {"dataloader's workers are out of shared memory", Kind::shm_full, always},
    {"OOMKilled", Kind::process_killed, always},
    {"oom_kill event", Kind::process_killed, always},
    {"oom-kill event", Kind::process_killed, always},
    {"CANCELLED AT", Kind::job_cancelled, cancelled},
    {"CUDA out of memory", Kind::cuda_oom, always},
    {"OutOfMemoryError", Kind::cuda_oom, out_of_memory},
    {"CUDA error: out of memory", Kind::cuda_oom, always},
    {"CUDA error: ", Kind::gpu_error, cuda_failure},
    {"Cuda failure ", Kind::gpu_error, cuda_failure},
    {"No space left on device", Kind::shm_full, no_space},
    {"Error:", Kind::fact_exception, exception},
    {"closing signal SIGTERM", Kind::fact_sigterm, always},
    {"via signal SIGTERM", Kind::fact_sigterm, always},
    {"death signal", Kind::fact_sigterm, always},
    {"forcefully exiting via", Kind::fact_forced_kill, always},
    {"taking the entire process down", Kind::fact_aborted, aborted},
    {"NCCL operations have failed or timed out", Kind::fact_aborted, aborted},
    {"terminated with exception", Kind::fact_aborted, aborted},
    {"remote process exiting prematurely", Kind::fact_aborted, aborted},
    {"communicator was aborted", Kind::fact_aborted, aborted},
    {"loss", Kind::fact_traffic, training},
    {"it/s", Kind::fact_traffic, training},
    {"s/it", Kind::fact_traffic, training},
    {"samples/s", Kind::fact_traffic, training},
    {"tokens/s", Kind::fact_traffic, training},
    {"toks/s", Kind::fact_traffic, training},
    {"iteration ", Kind::fact_traffic, training},
    {" iter ", Kind::fact_traffic, training},
    {"step ", Kind::fact_traffic, training},
    {"step=", Kind::fact_traffic, training},
    {"step:", Kind::fact_traffic, training},
};

}  // namespace

std::span<const Recogniser> process_recognisers() { return table; }

}  // namespace beeline::doctor::log
