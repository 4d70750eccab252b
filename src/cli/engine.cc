#include "cli/engine.h"

#include "api/engine.h"
#include "base/log.h"

namespace beeline::cli {

Result<Engine> open_engine() {
  Engine engine;
  BEELINE_TRY(engine.config, config_from_environment());
  set_log_level(engine.config.log_level);
  BEELINE_TRY(auto made, api::make_engine(engine.config));
  engine.card = std::move(made.card);
  engine.provider = std::move(made.provider);
  return engine;
}

}  // namespace beeline::cli
