// beeline devices: which cards there are, and how to reach them.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/devices_text.h"
#include "cli/engine.h"

namespace beeline::cli {
namespace {

void show(bool verbose, bool json) {
  auto engine = open_engine();
  if (!engine) give_up(engine.error());
  const auto devices = verbs::summarize_devices(*engine->provider);
  if (!devices) give_up(devices.error());
  if (json) {
    std::fputs(devices_json(*devices).c_str(), stdout);
    return;
  }
  std::fputs(devices_table(*devices).c_str(), stdout);
  if (verbose && engine->card)
    std::fputs(card_text(engine->card->limits(), engine->card->counters(), engine->card->port_counters(),
                         engine->card->checks_icrc_strictly())
                   .c_str(),
               stdout);
}

}  // namespace

void add_devices(CLI::App& app) {
  struct Arguments {
    bool verbose = false, json = false;
  };
  auto* command = app.add_subcommand("devices", "List the RDMA devices of this host");
  command->footer(
      "Examples:\n"
      "  beeline devices           one line per GID: device, interface, state, MTU, address\n"
      "  beeline devices --json    the same for programs\n");
  auto typed = std::make_shared<Arguments>();
  command->add_flag("-v,--verbose", typed->verbose, "Also limits, counters, and how packets are checked");
  command->add_flag("--json", typed->json, "Print JSON");
  command->callback([typed] { show(typed->verbose, typed->json); });
}

}  // namespace beeline::cli
