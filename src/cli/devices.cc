// beeline devices: which cards there are, and how to reach them.
#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/device_counters.h"
#include "cli/devices_text.h"
#include "cli/engine.h"
#include "port/udp/trains.h"

namespace beeline::cli {
namespace {

struct DevicesArguments {
  bool verbose = false, json = false;
  double watch_seconds = 0;  // 0: do not
  int count = 0;             // of intervals watched; 0: until interrupted
};

std::vector<DeviceCounters> read_all(const std::vector<verbs::DeviceSummary>& devices) {
  std::vector<DeviceCounters> all;
  all.reserve(devices.size());
  for (const verbs::DeviceSummary& device : devices) all.push_back(read_counters(device));
  return all;
}

// A table, or a line of JSON, per interval.
void watch(const std::vector<verbs::DeviceSummary>& devices, const DevicesArguments& typed) {
  const auto interval =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(typed.watch_seconds));
  const TimePoint start = monotonic_now();
  TimePoint last = start;
  std::vector<DeviceCounters> before = read_all(devices);
  for (int i = 1; typed.count == 0 || i <= typed.count; ++i) {
    std::this_thread::sleep_for(std::max(Duration{}, start + i * interval - monotonic_now()));
    const TimePoint now = monotonic_now();
    std::vector<DeviceCounters> after = read_all(devices);
    std::vector<DeviceRates> rates;
    for (std::size_t d = 0; d < after.size(); ++d)
      rates.push_back(rates_between(before[d], after[d], now - last));
    const std::string text = typed.json ? rates_json(rates, now - start) : rates_text(rates) + "\n";
    // A reader that has gone ends the watch; main says why.
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return;
    before = std::move(after);
    last = now;
  }
}

std::vector<TrainView> train_views(const Engine& engine) {
  std::vector<TrainView> views;
  for (const nic::Device& device : engine.card->devices())
    for (const Gid& address : device.gids) {
      const port::TrainRule rule = port::train_rule(engine.config.segmentation, address);
      views.push_back({device.name, to_string(address), rule.reason, rule.allowed});
    }
  return views;
}

void list(const std::vector<verbs::DeviceSummary>& devices, const Engine& engine,
          const DevicesArguments& typed) {
  std::vector<DeviceView> views;
  views.reserve(devices.size());
  for (const verbs::DeviceSummary& device : devices)
    views.push_back({device, numa_node(device), read_counters(device)});
  if (typed.json) {
    std::fputs(devices_json(views).c_str(), stdout);
    return;
  }
  std::fputs(devices_table(views).c_str(), stdout);
  if (!typed.verbose) return;
  for (const DeviceView& view : views) std::fputs(counters_text(view.counters).c_str(), stdout);
  if (!engine.card) return;
  std::fputs(card_text(engine.card->limits(), engine.card->counters(), engine.card->port_counters(),
                       engine.card->checks_icrc_strictly())
                 .c_str(),
             stdout);
  std::fputs(trains_text(train_views(engine)).c_str(), stdout);
}

void run(const DevicesArguments& typed) {
  if (typed.count != 0 && typed.watch_seconds == 0)
    give_up({Errc::invalid_argument, "--count says how often --watch prints: give --watch, too"});
  auto engine = open_engine();
  if (!engine) give_up(engine.error());
  const auto devices = verbs::summarize_devices(*engine->provider);
  if (!devices) give_up(devices.error());
  if (typed.watch_seconds > 0) return watch(*devices, typed);
  list(*devices, *engine, typed);
}

}  // namespace

void add_devices(CLI::App& app) {
  auto* command = app.add_subcommand("devices", "List the RDMA devices of this host");
  command->footer(
      "Examples:\n"
      "  beeline devices              one line per GID: device, interface, state, MTU, NUMA node, address\n"
      "  beeline devices -v           also counters, limits, and how packets are checked\n"
      "  beeline devices --json       all of it for programs\n"
      "  beeline devices --watch      what goes through, every second; --watch 0.5 --count 10 ends by "
      "itself\n"
      "\n"
      "Counters are those of the device's port; of a card in software those of the interface below it,\n"
      "which carries other traffic, too.\n");
  auto typed = std::make_shared<DevicesArguments>();
  command->add_flag("-v,--verbose", typed->verbose, "Also limits, counters, and how packets are checked");
  command->add_flag("--json", typed->json, "Print JSON");
  command->add_option("--watch", typed->watch_seconds, "Print rates, every so many seconds (1)")
      ->expected(0, 1)
      ->default_str("1")
      ->check(CLI::Range(0.1, 86400.0));
  command->add_option("--count", typed->count, "With --watch: how often, then end")
      ->check(CLI::Range(1, 1000000));
  command->callback([typed] { run(*typed); });
}

}  // namespace beeline::cli
