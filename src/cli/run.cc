// beeline run: any verbs program, on the card in software.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/config.h"
#include "base/descriptor.h"
#include "cli/child_process.h"
#include "cli/commands.h"
#include "cli/program_file.h"
#include "port/udp/udp_port.h"
#include "preload/paths/paths.h"
#include "preload/tree/tree.h"

namespace beeline::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view counters_option = "--counters";

// As shells have them (POSIX, "Exit Status for Commands").
constexpr int not_executable = 126, not_found = 127;

[[noreturn]] void refuse(int status, const std::string& sentence) {
  std::fprintf(stderr, "beeline run: %s\n", sentence.c_str());
  throw CLI::RuntimeError(status);
}

fs::path preload_library() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  fs::path library = program.parent_path().parent_path() / "lib/libbeeline-preload.so";
  if (!fs::exists(library, error))
    refuse(bad_use, fmt::format("{} is missing: build or install it again", library.string()));
  if (library.string().find_first_of(" :") != std::string::npos)
    refuse(bad_use,
           fmt::format("the dynamic linker cannot preload {}: no blanks or colons in the path, please",
                       library.string()));
  // The library needs it, and without it the dynamic linker would say less clearly why nothing starts.
  if (::dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr)
    refuse(bad_use, "libibverbs.so.1 is not installed: install libibverbs1 (rdma-core)");
  return library;
}

// Ours first; what was preloaded before stays.
std::string preload_list(const fs::path& library) {
  const char* before = std::getenv("LD_PRELOAD");
  if (before == nullptr || *before == '\0') return library.string();
  const std::string_view others(before);
  if (others.substr(0, others.find_first_of(" :")) == library.string()) return std::string(others);
  return fmt::format("{}:{}", library.string(), others);
}

// A directory that only this user can write to.
std::optional<fs::path> runtime_directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  const bool usable = runtime != nullptr && *runtime == '/' && ::stat(runtime, &status) == 0 &&
                      S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() && ::access(runtime, W_OK) == 0;
  if (!usable) return std::nullopt;
  return runtime;
}

// There, else where everybody's temporary files are: a runtime directory may be full, they are small.
Result<preload::Tree> make_tree(const Config& config) {
  BEELINE_TRY(const auto interfaces, port::list_interfaces());
  const auto devices = nic::make_devices(interfaces);
  const auto make_in = [&](const fs::path& where) {
    preload::sweep_trees(where);
    return preload::Tree::make(devices, {where, "/", config.provider});
  };
  if (const auto own = runtime_directory())
    if (auto tree = make_in(*own)) return tree;
  return make_in("/tmp");
}

// Whoever asks for counters learns before the program runs that there will be none.
fs::path counters_path(const std::string& name) {
  std::error_code ignored;
  fs::path path = fs::absolute(name, ignored);
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) refuse(bad_use, fmt::format("--counters {}: {}", path.string(), std::strerror(errno)));
  return path;
}

void check_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  const ProgramFile program = look_at_program(name, path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  switch (program.state) {
    case ProgramFile::State::runnable:
      return;
    case ProgramFile::State::not_found:
      refuse(not_found, program.why);
    case ProgramFile::State::not_executable:
      refuse(not_executable, program.why);
    case ProgramFile::State::cannot_preload:
      refuse(bad_use, program.why);
  }
}

int run(const std::vector<std::string>& words, const std::string& counters) {
  if (words.empty()) refuse(bad_use, "which program? For example: beeline run -- ibv_devinfo");
  check_program(words[0]);
  const auto config = config_from_environment();
  if (!config) refuse(bad_use, config.error().message);
  const std::string list = preload_list(preload_library());
  if (!counters.empty()) ::setenv("BEELINE_COUNTERS", counters_path(counters).c_str(), 1);

  SignalRelay signals;  // before there is something to remove
  std::optional<preload::Tree> tree;
  if (config->provider != Provider::system) {
    auto made = make_tree(*config);
    if (!made) refuse(bad_use, made.error().message);
    tree.emplace(std::move(*made));
    ::setenv(std::string(preload::tree_variable).c_str(), tree->path().c_str(), 1);
  }
  ::setenv("LD_PRELOAD", list.c_str(), 1);
  const auto status = signals.run(words);
  if (!status) refuse(not_executable, status.error().message);
  return *status;
}

}  // namespace

std::vector<std::string> cut_off_program(int& argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "run") return {};
  for (int i = 2; i < argc; ++i) {
    const bool separator = std::string_view(argv[i]) == "--";
    if (!separator && argv[i][0] == '-') {
      if (std::string_view(argv[i]) == counters_option) ++i;  // and its file
      continue;
    }
    std::vector<std::string> words(argv + i + (separator ? 1 : 0), argv + argc);
    argc = i;
    return words;
  }
  return {};
}

void add_run(CLI::App& app, std::vector<std::string> program) {
  auto* command = app.add_subcommand("run", "Run any RDMA program on the software card");
  command->footer(
      "Runs PROGRAM, unmodified, with bee0, bee1, … as RDMA devices: one per network interface with an\n"
      "address, the machine's own RDMA devices before them. No root, no kernel module.\n"
      "\n"
      "Usage: beeline run [--counters FILE] [--print-env] [--] PROGRAM [ARGUMENT ...]\n"
      "\n"
      "How: libbeeline-preload.so is preloaded (LD_PRELOAD). It stands before libibverbs, and before libc "
      "where\n"
      "programs look for devices in /sys/class/infiniband and /dev/infiniband. The real libibverbs and\n"
      "librdmacm stay in use.\n"
      "\n"
      "Nothing can be preloaded into set-user-ID programs and those with file capabilities, statically\n"
      "linked ones, and ones built for musl; beeline run says so and ends with status 2.\n"
      "\n"
      "The exit status is the program's, 128 + N when signal N ended it, 127 when there is no such program,\n"
      "126 when it cannot be executed. Signals are passed on. BEELINE_PROVIDER=soft hides the machine's own\n"
      "RDMA devices. BEELINE_LOG=debug says why the card refused a call.\n"
      "\n"
      "Examples:\n"
      "  beeline run -- ibv_devinfo -v\n"
      "  beeline run -- ib_write_bw -d bee0                  and on the other host\n"
      "  beeline run -- ib_write_bw -d bee0 192.0.2.1\n"
      "  beeline run -- ibv_rc_pingpong -d bee0 -g 0\n"
      "  beeline run --counters moved.json -- ib_read_bw -d bee0 192.0.2.1\n"
      "  mpirun -n 2 beeline run -- ./solver                 on every host, or, for programs on this one,\n"
      "  beeline run -- mpirun -n 2 -x LD_PRELOAD ./solver\n");
  auto print = std::make_shared<bool>(false);
  command->add_flag(
      "--print-env", *print,
      "Print the variables to set, for those who start programs in other ways. Verbs work with\n"
      "them; files in /sys/class/infiniband are there only under beeline run");
  auto counters = std::make_shared<std::string>();
  command
      ->add_option(std::string(counters_option), *counters,
                   "At its end every process that used the card appends to FILE what the card moved: a\n"
                   "line of JSON, with the payload bytes of each lane. Also: BEELINE_COUNTERS=FILE")
      ->type_name("FILE");
  command->callback([print, counters, words = std::move(program)] {
    if (*print) {
      std::printf("LD_PRELOAD=%s\n", preload_list(preload_library()).c_str());
      if (!counters->empty()) std::printf("BEELINE_COUNTERS=%s\n", counters_path(*counters).c_str());
      return;
    }
    if (const int status = run(words, *counters); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace beeline::cli
