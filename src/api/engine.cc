#include "api/engine.h"

#include <vector>

#include "port/udp/udp_port.h"
#include "verbs/joined/joined_provider.h"
#include "verbs/system/system_provider.h"

namespace beeline::api {
namespace {

Result<std::unique_ptr<nic::Card>> make_card(const Config& config) {
  BEELINE_TRY(const auto interfaces, port::list_interfaces());
  BEELINE_TRY(auto port, port::make_udp_port(config.icrc, config.segmentation));
  BEELINE_TRY(auto card, nic::Card::create(config, std::move(port), interfaces));
  card->follow_host();
  return card;
}

}  // namespace

Result<Engine> make_engine(const Config& config) {
  Engine engine;
  std::vector<std::unique_ptr<verbs::Provider>> providers;
  if (config.provider != Provider::soft) providers.push_back(verbs::make_system_provider());
  if (config.provider != Provider::system) {
    BEELINE_TRY(engine.card, make_card(config));
    auto soft = verbs::make_full_soft_provider(*engine.card);
    engine.soft = soft.get();
    providers.push_back(std::move(soft));
  }
  engine.provider = providers.size() == 1 ? std::move(providers.front())
                                          : verbs::make_joined_provider(std::move(providers));
  return engine;
}

}  // namespace beeline::api
