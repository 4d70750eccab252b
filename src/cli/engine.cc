#include "cli/engine.h"

#include <unistd.h>

#include <cstdlib>

#include "api/engine.h"
#include "base/log.h"
#include "base/unknown_variables.h"

extern char** environ;

namespace beeline::cli {

Result<Engine> open_engine() {
  Engine engine;
  BEELINE_TRY(engine.config, config_from_environment());
  set_log_level(engine.config.log_level);
  for (const auto& variable : unknown_variables(environ)) {
    logger()->warn("{}", variable.warning);
    ::unsetenv(variable.name.c_str());  // or the processes that this one starts would say it again
  }
  BEELINE_TRY(auto made, api::make_engine(engine.config));
  engine.card = std::move(made.card);
  engine.provider = std::move(made.provider);
  return engine;
}

}  // namespace beeline::cli
