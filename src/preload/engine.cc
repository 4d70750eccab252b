#include "preload/engine.h"

#include <pthread.h>

#include <mutex>

#include "api/process.h"
#include "preload/ucma/ucma.h"

namespace beeline::preload {
namespace {

Engine of(const api::Process* process) {
  if (process == nullptr) return {};
  return {process->card.get(), process->soft, process->config.provider != Provider::soft};
}

// Registered after api/process.h has its own handlers, so that in the child the engine is gone first.
void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, ucma::abandon_after_fork); });
}

}  // namespace

Result<Engine> engine() {
  BEELINE_TRY(const api::Process* process, api::this_process());
  watch_forks();
  return of(process);
}

Engine engine_if_any() noexcept { return of(api::this_process_if_any()); }

}  // namespace beeline::preload
