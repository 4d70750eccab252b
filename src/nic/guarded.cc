#include "nic/guarded.h"

#include <csignal>
#include <mutex>

#include "base/check.h"
#include "nic/guarded_machine.h"

#if defined(__SANITIZE_ADDRESS__)
#define BEELINE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BEELINE_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef BEELINE_ADDRESS_SANITIZER
extern "C" void __asan_handle_no_return();
#endif

namespace beeline::nic {
namespace {

constexpr int handled_signals[] = {SIGSEGV, SIGBUS};
constexpr int signal_count = 2;

// What this thread is reading in a guarded call. Initial-exec: the handler must not be the first to
// touch thread-local storage, which may allocate.
struct GuardedCall {
  std::uintptr_t begin = 0, end = 0;  // empty: none
  void* stack = nullptr;
};
// Where the handler is, when it has passed a signal on: who is below may pass it back.
struct PassedOn {
  const siginfo_t* info = nullptr;
  std::uintptr_t frame = 0;
};
[[gnu::tls_model("initial-exec")]] thread_local GuardedCall guarded_call;
[[gnu::tls_model("initial-exec")]] thread_local PassedOn passed_on;

// The table of handlers is the process's, so what is known of it is too.
struct Chain {
  struct sigaction below = {};   // what was there when ours was first installed
  struct sigaction newest = {};  // what was there when ours was last put on top
};
struct HandlerTable {
  std::mutex mutex;  // never taken by the handler
  int owners = 0;
  Chain chains[signal_count];
};
HandlerTable& table() {
  static HandlerTable the_table;
  return the_table;
}
// The handler's way to it, without the guard of a static's initialisation.
Chain* volatile installed_chains = nullptr;

bool in_guarded_copy(std::uintptr_t pc) {
  return pc >= machine::address_of(beeline_guarded_copy_begin) &&
         pc < machine::address_of(beeline_guarded_copy_end);
}

bool in_guarded_atomic(std::uintptr_t pc) {
  return pc >= machine::address_of(beeline_guarded_atomic_begin) &&
         pc < machine::address_of(beeline_guarded_atomic_end);
}

// An address that no mapping can have (non-canonical) is reported by x86-64 as SI_KERNEL with address 0.
bool in_guarded_call(const siginfo_t& info) {
  if (guarded_call.begin == guarded_call.end) return false;
  const auto fault = reinterpret_cast<std::uintptr_t>(info.si_addr);
  return info.si_code == SI_KERNEL || (fault >= guarded_call.begin && fault < guarded_call.end);
}

// Moves the thread to the recovery of our own instructions; false when the fault is not ours.
bool recover(const siginfo_t& info, ucontext_t& context) {
  if (info.si_code <= 0) return false;  // sent by a process, not by a fault
  if (in_guarded_copy(machine::program_counter(context))) {
    machine::jump(context, beeline_guarded_copy_fault);
    return true;
  }
  if (in_guarded_atomic(machine::program_counter(context))) {
    machine::jump(context, beeline_guarded_atomic_fault);
    return true;
  }
  if (in_guarded_call(info)) {
    machine::set_stack(context, guarded_call.stack);
    machine::jump(context, beeline_guarded_call_fault);
    return true;
  }
  return false;
}

void default_action(int signal, const siginfo_t* info) {
  std::signal(signal, SIG_DFL);
  // A real fault happens again when the handler returns, with the right stack in the core file.
  if (info->si_code <= 0) std::raise(signal);
}

void call(const struct sigaction& action, int signal, siginfo_t* info, void* context) {
  if ((action.sa_flags & SA_SIGINFO) != 0) return action.sa_sigaction(signal, info, context);
  if (action.sa_handler == SIG_DFL) return default_action(signal, info);
  // Ignoring a fault is not possible: the kernel ends the process then (sigaction(2)).
  if (action.sa_handler == SIG_IGN) return info->si_code <= 0 ? void() : default_action(signal, info);
  action.sa_handler(signal);
}

// A handler that was installed above ours passes on what it does not want: to ours. When
// ours is then put on top again, a foreign fault comes here twice, the second time with the
// same siginfo from deeper in the stack, and must go to the bottom of the chain.
void pass_on(int signal, siginfo_t* info, void* context) {
  const Chain& chain = installed_chains[signal == SIGSEGV ? 0 : 1];
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (passed_on.info == info && frame < passed_on.frame) return call(chain.below, signal, info, context);
  const PassedOn before = passed_on;
  passed_on = {info, frame};
  call(chain.newest, signal, info, context);
  passed_on = before;
}

void handle_fault(int signal, siginfo_t* info, void* context) {
  if (!recover(*info, *static_cast<ucontext_t*>(context))) pass_on(signal, info, context);
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == handle_fault;
}

void install(int signal, const struct sigaction& below) {
  struct sigaction ours = {};
  ours.sa_sigaction = handle_fault;
  ours.sa_mask = below.sa_mask;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (below.sa_flags & SA_NODEFER);
  BEELINE_CHECK(::sigaction(signal, &ours, nullptr) == 0);
}

struct CrcCall {
  wire::Icrc crc;
  Bytes data;
};

void run_crc(void* argument) {
  auto& work = *static_cast<CrcCall*>(argument);
  work.crc.update(work.data);
}

}  // namespace

FaultHandlers::FaultHandlers() {
  const std::lock_guard lock(table().mutex);
  if (table().owners++ > 0) return;
  installed_chains = table().chains;
  for (int i = 0; i < signal_count; ++i) {
    struct sigaction before = {};
    ::sigaction(handled_signals[i], nullptr, &before);
    if (is_ours(before)) continue;  // left behind below somebody who is gone by now
    table().chains[i] = {before, before};
    install(handled_signals[i], before);
  }
}

FaultHandlers::~FaultHandlers() {
  const std::lock_guard lock(table().mutex);
  if (--table().owners > 0) return;
  for (int i = 0; i < signal_count; ++i) {
    struct sigaction now = {};
    ::sigaction(handled_signals[i], nullptr, &now);
    if (is_ours(now)) ::sigaction(handled_signals[i], &table().chains[i].newest, nullptr);
  }
}

void FaultHandlers::ensure_on_top() {
  const std::lock_guard lock(table().mutex);
  if (table().owners == 0) return;
  for (int i = 0; i < signal_count; ++i) {
    struct sigaction now = {};
    ::sigaction(handled_signals[i], nullptr, &now);
    if (is_ours(now)) continue;
    table().chains[i].newest = now;
    install(handled_signals[i], now);
  }
}

bool copy_guarded(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  return beeline_guarded_copy(to, from, bytes) == 0;
}

bool compare_swap_guarded(std::byte* at, std::uint64_t compare, std::uint64_t swap,
                          std::uint64_t& before) noexcept {
  before = compare;
  return beeline_guarded_compare_swap(at, &before, swap) == 0;
}

bool fetch_add_guarded(std::byte* at, std::uint64_t add, std::uint64_t& before) noexcept {
  before = add;
  return beeline_guarded_fetch_add(at, &before) == 0;
}

bool crc_guarded(wire::Icrc& crc, Bytes data) noexcept {
  CrcCall work{crc, data};
  guarded_call.begin = reinterpret_cast<std::uintptr_t>(data.data());
  guarded_call.end = guarded_call.begin + data.size();
  const bool faulted = beeline_guarded_call(run_crc, &work, &guarded_call.stack) != 0;
  guarded_call.begin = guarded_call.end = 0;
#ifdef BEELINE_ADDRESS_SANITIZER
  if (faulted) __asan_handle_no_return();  // frames were left without their epilogues
#endif
  if (faulted) return false;
  crc = work.crc;
  return true;
}

}  // namespace beeline::nic
