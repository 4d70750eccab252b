#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "cli/commands.h"
#include "cli/failure_message.h"

namespace {

constexpr int doctor_could_not = 1;

// 0 after --help and --version. A command that ends with a status of its own has said why already.
int tell(const CLI::App& app, const CLI::ParseError& end) {
  if (dynamic_cast<const CLI::RuntimeError*>(&end) != nullptr) return end.get_exit_code();
  if (app.exit(end) == 0) return 0;
  return app.got_subcommand("doctor") ? doctor_could_not
                                      : beeline::cli::bad_use;  // of a doctor, 2 means warnings
}

int run(int argc, char** argv) {
  auto program = beeline::cli::cut_off_program(argc, argv);
  CLI::App app{
      "Beeline: zero-copy RoCE v2 communication, with a network card in software where there is none."};
  app.name("beeline");
  app.set_version_flag("--version", "beeline " BEELINE_VERSION);
  app.require_subcommand(1);
  app.failure_message(beeline::cli::failure_message);
  app.footer(
      "Examples:\n"
      "  beeline devices                      which cards there are\n"
      "  beeline run -- ib_write_bw           any RDMA program, on the software card\n"
      "  beeline perf write_bw --loopback     bandwidth between two processes of this host\n"
      "  beeline bench all_reduce --ranks 4   a collective, measured and checked\n"
      "  beeline doctor                       what is wrong with this host's RoCE network\n");
  beeline::cli::add_devices(app);
  beeline::cli::add_perf(app);
  beeline::cli::add_bench(app);
  beeline::cli::add_doctor(app);
  beeline::cli::add_run(app, std::move(program));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {
    return tell(app, end);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int status = run(argc, argv);
    // What could not be written was not said: a full disk, a closed pipe.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      std::fprintf(stderr, "beeline: standard output could not be written: %s\n", std::strerror(errno));
      return status != 0 ? status : 1;
    }
    return status;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "beeline: %s\n", e.what());
    return 1;
  }
}
