#include <cstdio>

#include "cli/commands.h"

namespace beeline::cli {

void give_up(const Error& error) {
  std::fprintf(stderr, "beeline: %s\n", error.message.c_str());
  throw CLI::RuntimeError(1);
}

}  // namespace beeline::cli
