#include "cli/engine.h"

#include "base/log.h"
#include "port/udp/udp_port.h"

namespace beeline::cli {

Result<Engine> open_engine() {
  Engine engine;
  BEELINE_TRY(engine.config, config_from_environment());
  set_log_level(engine.config.log_level);
  if (engine.config.provider == Provider::system)
    return fail(Errc::unsupported,
                "BEELINE_PROVIDER=system: this release drives its own card only; unset it, or give soft");
  BEELINE_TRY(const auto interfaces, port::list_interfaces());
  if (interfaces.empty())
    return fail(Errc::not_found,
                "no interface of this host has an address: give one an address (ip addr add)");
  BEELINE_TRY(auto port, port::make_udp_port());
  BEELINE_TRY(engine.card, nic::Card::create(engine.config, std::move(port), interfaces));
  engine.provider = verbs::make_soft_provider(*engine.card);
  return engine;
}

}  // namespace beeline::cli
