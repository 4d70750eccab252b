// beeline bench: collectives, measured and checked, with the letters of nccl-tests.
#include <unistd.h>

#include <cstdio>

#include "bench/launch.h"
#include "bench/run.h"
#include "bench/values.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/engine.h"
#include "cli/json_file.h"
#include "verbs/verbs.h"

namespace beeline::cli {
namespace {

constexpr int most_ranks = 1 << 20;  // of any group

// As typed.
struct BenchArguments {
  std::string operation, min_size = "1K", max_size = "16M", dtype = "float", redop = "sum";
  std::size_t factor = 4;
  int iterations = 20, warmups = 5, root = 0, check = 1;
  int ranks = 0;            // this command starts them …
  int rank = -1, size = 0;  // … or is one of them
  std::string rendezvous, device, json_path;
  double timeout_seconds = 600;
};

template <class T>
T value_or_give_up(Result<T> result) {
  if (!result) give_up(result.error());
  return std::move(*result);
}

bench::RunOptions to_run_options(const BenchArguments& typed) {
  bench::RunOptions options;
  options.job.operation = value_or_give_up(bench::parse_operation(typed.operation));
  options.job.dtype = value_or_give_up(bench::parse_dtype(typed.dtype));
  options.job.redop = value_or_give_up(bench::parse_redop(typed.redop));
  options.job.root = typed.root;
  options.min_bytes = value_or_give_up(bench::parse_size(typed.min_size));
  options.max_bytes = value_or_give_up(bench::parse_size(typed.max_size));
  options.factor = typed.factor;
  options.iterations = typed.iterations;
  options.warmups = typed.warmups;
  options.check = typed.check == 1;
  options.json_path = typed.json_path;
  (void)value_or_give_up(bench::size_steps(options.min_bytes, options.max_bytes, options.factor));
  return options;
}

// The command line that makes this program one rank of the same run.
std::vector<std::string> rank_command(const BenchArguments& typed, int rank, std::uint16_t port) {
  std::vector<std::string> words{"bench", typed.operation};
  const auto add = [&](const char* option, const std::string& value) {
    words.emplace_back(option);
    words.push_back(value);
  };
  add("-b", typed.min_size), add("-e", typed.max_size), add("-d", typed.dtype), add("-o", typed.redop);
  add("-f", std::to_string(typed.factor)), add("-n", std::to_string(typed.iterations));
  add("-w", std::to_string(typed.warmups)), add("-r", std::to_string(typed.root));
  add("-c", std::to_string(typed.check));
  if (!typed.device.empty()) add("--device", typed.device);
  if (!typed.json_path.empty()) add("--json", typed.json_path);
  add("--rank", std::to_string(rank)), add("--size", std::to_string(typed.ranks));
  add("--rendezvous", fmt::format("127.0.0.1:{}", port));
  return words;
}

// What would be wrong for every rank alike is said once, before any of them starts.
Result<void> try_settings(const BenchArguments& typed) {
  if (!typed.json_path.empty()) BEELINE_TRY_VOID(probe_file(typed.json_path));
  BEELINE_TRY(const auto engine, open_engine());
  const std::string& device = typed.device.empty() ? engine.config.device : typed.device;
  BEELINE_TRY(const auto context, verbs::open_device(*engine.provider, device));
  BEELINE_TRY_VOID(verbs::choose_gid(*engine.provider, context.get(), 1, engine.config.gid_index));
  return {};
}

void start_ranks(const BenchArguments& typed, bench::RunOptions options) {
  options.job.ranks = typed.ranks;
  if (options.check)
    if (const auto possible = bench::check_is_possible(options.job); !possible) give_up(possible.error());
  if (typed.root >= typed.ranks)
    give_up({Errc::invalid_argument, fmt::format("-r {}: there are only {} ranks, 0 … {}", typed.root,
                                                 typed.ranks, typed.ranks - 1)});
  if (const auto tried = try_settings(typed); !tried) give_up(tried.error());
  const auto port = value_or_give_up(bench::ReservedPort::take());
  bench::LaunchOptions launch;
  launch.ranks = typed.ranks;
  launch.program = "/proc/self/exe";
  launch.arguments = [&](int rank) { return rank_command(typed, rank, port.port()); };
  launch.deadline = Duration{static_cast<std::int64_t>(typed.timeout_seconds * 1e9)};
  if (const auto outcome = bench::launch(launch); !outcome) give_up(outcome.error());
}

void be_a_rank(const BenchArguments& typed, const bench::RunOptions& options) {
  bench::Place place;
  place.device = typed.device;
  if (typed.rank >= 0 || typed.size > 0 || !typed.rendezvous.empty()) {
    if (typed.rank < 0 || typed.size < 1 || typed.rendezvous.empty())
      give_up({Errc::invalid_argument, "--rank, --size and --rendezvous go together"});
    place.rank = typed.rank;
    place.size = typed.size;
    place.rendezvous = typed.rendezvous;
  }
  auto outcome = bench::run_rank(place, options);
  if (!outcome && outcome.error().code == Errc::invalid_argument && place.rendezvous.empty())
    outcome.error().message += "; --ranks N starts N ranks on this host";
  const auto wrong = value_or_give_up(std::move(outcome));
  if (wrong > 0) throw CLI::RuntimeError(1);  // the table says how many
}

void run(const BenchArguments& typed) {
  const bench::RunOptions options = to_run_options(typed);
  if (typed.ranks == 0) return be_a_rank(typed, options);
  if (typed.rank >= 0 || typed.size > 0 || !typed.rendezvous.empty())
    give_up({Errc::invalid_argument,
             "--ranks starts all ranks on this host; leave out --rank, --size and --rendezvous"});
  start_ranks(typed, options);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto typed = std::make_shared<BenchArguments>();
  CLI::App* bench =
      app.add_subcommand("bench", "Measures and checks a collective operation (options as in nccl-tests)");
  bench->add_option("operation", typed->operation, "What to measure")
      ->required()
      ->check(CLI::IsMember(bench::operation_names()));
  bench->add_option("-b,--minbytes", typed->min_size, "Least size: bytes, or with K, M, G")
      ->capture_default_str();
  bench->add_option("-e,--maxbytes", typed->max_size, "Largest size")->capture_default_str();
  bench->add_option("-f,--stepfactor", typed->factor, "From size to size")
      ->check(between<std::size_t>(1, SIZE_MAX))
      ->capture_default_str();
  bench->add_option("-n,--iters", typed->iterations, "Operations per measurement")
      ->check(between(1, 1000000))
      ->capture_default_str();
  bench->add_option("-w,--warmup_iters", typed->warmups, "Operations before each measurement")
      ->check(between(0, 1000000))
      ->capture_default_str();
  bench->add_option("-d,--datatype", typed->dtype, "float, bfloat16, int32, int64 or uint8")
      ->capture_default_str();
  bench->add_option("-o,--op", typed->redop, "sum, max or avg")->capture_default_str();
  bench->add_option("-r,--root", typed->root, "Root of broadcast")
      ->check(between(0, most_ranks - 1))
      ->capture_default_str();
  bench
      ->add_option("-c,--check", typed->check,
                   "1: fresh data for every operation, every element checked; 0: neither")
      ->check(between(0, 1))
      ->capture_default_str();
  bench->add_option("--json", typed->json_path, "Writes the results to this file, too")->check(not_empty());
  bench->add_option("--device", typed->device, "Device to use (see beeline devices)")->check(not_empty());
  bench->add_option("-T,--timeout", typed->timeout_seconds, "With --ranks: seconds until the run is stopped")
      ->check(between(0.001, 1e6))
      ->capture_default_str();
  bench->add_option("--ranks", typed->ranks, "Starts so many ranks on this host")->check(between(1, 1024));
  bench->add_option("--rank", typed->rank, "Is one rank of a run that something else starts …")
      ->check(between(0, most_ranks - 1));
  bench->add_option("--size", typed->size, "… of so many ranks …")->check(between(1, most_ranks));
  bench
      ->add_option(
          "--rendezvous", typed->rendezvous,
          "… that meet at host:port of rank 0. Without these: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT")
      ->check(not_empty());
  bench->callback([typed] { run(*typed); });
}

}  // namespace beeline::cli
