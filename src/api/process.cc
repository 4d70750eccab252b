#include "api/process.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "api/counters_file.h"
#include "api/engine.h"
#include "base/log.h"
#include "base/unknown_variables.h"

extern char** environ;

namespace beeline::api {
namespace {

struct Holder {
  std::mutex mutex;  // held across a fork, so that the child finds everything consistent
  std::unique_ptr<Process> process;
  std::vector<bootstrap::Group*> groups;
  std::atomic<std::uint64_t> generation{0};
  bool watches_forks = false;
};

// Never destroyed: threads of the card and of executors run until the process ends.
Holder& holder() {
  static Holder* const the_holder = new Holder;
  return *the_holder;
}

void abandon_everything(Holder& state) {
  for (bootstrap::Group* group : state.groups) group->abandon_after_fork();
  state.groups.clear();
  if (state.process) {
    if (state.process->card) state.process->card->abandon_after_fork();
    // Its threads exist in the parent only: destroying it would wait for them for ever.
    (void)state.process.release();
  }
  ++state.generation;
}

void watch_forks(Holder& state) {
  if (std::exchange(state.watches_forks, true)) return;
  ::pthread_atfork([] { holder().mutex.lock(); }, [] { holder().mutex.unlock(); },
                   [] {
                     abandon_everything(holder());
                     holder().mutex.unlock();
                   });
}

Result<std::unique_ptr<Process>> make_process() {
  auto process = std::make_unique<Process>();
  BEELINE_TRY(process->config, config_from_environment());
  set_log_level(process->config.log_level);
  for (const auto& variable : unknown_variables(environ)) logger()->warn("{}", variable.warning);
  BEELINE_TRY(auto engine, make_engine(process->config));
  process->card = std::move(engine.card);
  process->provider = std::move(engine.provider);
  process->soft = engine.soft;
  if (!process->config.counters_file.empty()) write_counters_at_exit(process->config.counters_file);
  return process;
}

}  // namespace

Result<Process*> this_process() {
  Holder& state = holder();
  const std::lock_guard lock(state.mutex);
  watch_forks(state);
  if (!state.process) {
    BEELINE_TRY(state.process, make_process());
  }
  return state.process.get();
}

Process* this_process_if_any() {
  const std::lock_guard lock(holder().mutex);
  return holder().process.get();
}

std::uint64_t generation() { return holder().generation; }

void enlist(bootstrap::Group* group) {
  const std::lock_guard lock(holder().mutex);
  watch_forks(holder());
  holder().groups.push_back(group);
}

void strike_off(bootstrap::Group* group) {
  const std::lock_guard lock(holder().mutex);
  auto& groups = holder().groups;
  groups.erase(std::remove(groups.begin(), groups.end(), group), groups.end());
}

}  // namespace beeline::api
