#include "cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"Beeline: zero-copy RoCE v2 communication, with a network card in software where there is none."};
  app.name("beeline");
  app.require_subcommand(1);
  beeline::cli::add_devices(app);
  beeline::cli::add_perf(app);
  beeline::cli::add_bench(app);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
