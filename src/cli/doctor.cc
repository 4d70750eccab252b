// beeline doctor: what is wrong with this host's RoCE, or with a recorded one's.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/doctor_peer.h"
#include "cli/doctor_ranks.h"
#include "doctor/host/live.h"
#include "doctor/host/merge.h"
#include "doctor/host/recording.h"
#include "doctor/host/report.h"
#include "doctor/host/secrets.h"
#include "doctor/log/diagnose.h"
#include "doctor/peer/checks.h"

extern char** environ;

namespace beeline::cli {
namespace {

struct Arguments {
  bool json = false, list = false, verbose = false, pseudonymise = false, force = false, wants_log = false;
  std::string only, explain, root, record;
  std::vector<std::string> merge, logs;
  PeerArguments peer;
  RankArguments ranks;
};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// The facts that only a composition root may read.
std::map<std::string, std::string> given_facts() {
  std::string variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (doctor::may_record_variable(text.substr(0, text.find('='))) && text.find('\n') == std::string::npos)
      variables += text + "\n";
  }
  return {{"environment", variables}, {"hostname", host_name()}};
}

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

bool colourful() {
  const char* no_colour = std::getenv("NO_COLOR");
  return (no_colour == nullptr || *no_colour == '\0') && ::isatty(STDOUT_FILENO) == 1;
}

constexpr std::size_t largest_report = std::size_t{64} << 20;

std::string read_report(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  while (file && text.size() <= largest_report) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (text.size() > largest_report)
    give_up({Errc::io, "--merge " + path + ": larger than any report (64 MiB)"});
  if (file.bad() || text.empty()) give_up({Errc::io, "--merge " + path + ": cannot be read, or is empty"});
  return text;
}

void merge(const Arguments& typed) {
  if (typed.merge.size() < 2) give_up({Errc::invalid_argument, "--merge needs at least two reports"});
  std::vector<doctor::NamedText> reports;
  reports.reserve(typed.merge.size());
  for (const auto& path : typed.merge) reports.push_back({path, read_report(path)});
  const auto compared = doctor::compare_reports(reports, doctor::SameHost::keep);
  if (!compared) give_up(compared.error());
  print(typed.json ? doctor::to_json(*compared) : doctor::to_text(*compared, {colourful(), typed.verbose}));
  if (const int status = doctor::exit_status(*compared); status != 0) throw CLI::RuntimeError(status);
}

void explain(const std::string& id) {
  const auto* check = doctor::find_check(id);
  if (check == nullptr) check = doctor::peer::find_peer_check(id);
  if (check == nullptr) {
    std::vector<std::string_view> names;
    for (const auto& known : doctor::registry()) names.push_back(known.id);
    for (const auto& known : doctor::peer::checks()) names.push_back(known.id);
    give_up({Errc::not_found, "--explain " + id + ": no such check" + did_you_mean(id, names) +
                                  "; `beeline doctor --list` names them"});
  }
  print(doctor::explain(*check));
}

void record(const Arguments& typed, const doctor::Readings& readings) {
  doctor::Pseudonyms pseudonyms(host_name());
  const auto clean = doctor::cleaned(readings, typed.pseudonymise ? &pseudonyms : nullptr);
  if (const auto written = doctor::write_recording(typed.record, clean); !written) give_up(written.error());
  std::printf("%s: %zu readings; secrets removed%s. Examine it with: beeline doctor --root %s\n",
              typed.record.c_str(), clean.size(),
              typed.pseudonymise ? ", names and addresses replaced"
                                 : "; it names this host and its addresses (--pseudonymise)",
              typed.record.c_str());
}

void examine(const Arguments& typed) {
  const auto chosen = doctor::choose_checks(typed.only);
  if (!chosen) give_up(chosen.error());
  const auto job = typed.record.empty() ? job_to_compare(typed.ranks) : std::nullopt;
  std::unique_ptr<doctor::Evidence> host;
  if (typed.root.empty()) {
    host = std::make_unique<doctor::LiveHost>(given_facts());
  } else {
    auto opened = doctor::open_root(typed.root);
    if (!opened) give_up(opened.error());
    host = std::move(*opened);
  }
  doctor::Recorder recorder(*host);
  const auto report = doctor::examine_host(recorder, *chosen);
  if (!typed.record.empty()) return record(typed, recorder.readings());
  // A launcher may give its ranks a terminal of its own, and write what they say to a file.
  if (job) return compare_ranks(typed.ranks, *job, report, typed.json, {false, typed.verbose});
  print(typed.json ? doctor::to_json(report) : doctor::to_text(report, {colourful(), typed.verbose}));
  if (const int status = doctor::exit_status(report); status != 0) throw CLI::RuntimeError(status);
}

volatile std::sig_atomic_t interrupted = 0;

// Ctrl-C ends a log that does not end by itself (`tail -f …`); a second one ends the doctor.
void end_reading_when_interrupted() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // and no SA_RESTART: what waits for input comes back
  ::sigaction(SIGINT, &action, nullptr);
}

// A piece of a log at a time: logs are larger than memory should be.
void read_log(const std::string& path, doctor::log::Reader& reader) {
  const bool standard_input = path == "-";
  std::FILE* file = standard_input ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) give_up({Errc::io, fmt::format("--log {}: {}", path, std::strerror(errno))});
  if (standard_input) {
    if (::isatty(STDIN_FILENO) == 1) std::fputs("reading standard input; Ctrl-D ends it\n", stderr);
    end_reading_when_interrupted();
  }
  reader.start_source(standard_input ? "stdin" : path);
  std::vector<char> piece(std::size_t{1} << 16);
  while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), file)) {
    reader.add({piece.data(), count});
    if (interrupted != 0) return;
  }
  if (interrupted != 0) return;
  const bool failed = std::ferror(file) != 0;
  const int error = errno;
  if (!standard_input) std::fclose(file);
  if (failed) give_up({Errc::io, fmt::format("--log {}: {}", path, std::strerror(error))});
}

void diagnose_logs(const Arguments& typed) {
  doctor::log::Reader reader;
  // Without a name it is standard input, as for `--log -`.
  for (const auto& path : typed.logs.empty() ? std::vector<std::string>{"-"} : typed.logs)
    read_log(path, reader);
  const auto diagnosis = reader.finish();
  print(typed.json ? doctor::log::to_json(diagnosis).dump(2) + "\n"
                   : doctor::log::render(diagnosis, colourful(), typed.verbose));
  const auto worst = doctor::log::worst(diagnosis);
  if (worst == doctor::log::Severity::failure) throw CLI::RuntimeError(3);
  if (worst == doctor::log::Severity::warning) throw CLI::RuntimeError(2);
}

void start(const Arguments& typed) {
  if (typed.pseudonymise && typed.record.empty())
    give_up({Errc::invalid_argument, "--pseudonymise belongs to --record FILE.tar.zst"});
  if (typed.force && typed.record.empty())
    give_up({Errc::invalid_argument, "--force belongs to --record FILE.tar.zst"});
  std::error_code unknown;  // then writing it says why
  if (!typed.record.empty() && !typed.force && std::filesystem::is_regular_file(typed.record, unknown))
    give_up(
        {Errc::in_use, "--record " + typed.record + ": there is such a file already; --force replaces it"});
  if (typed.list) return print(doctor::list_checks() + doctor::peer::list_peer_checks());
  if (!typed.explain.empty()) return explain(typed.explain);
  if (!typed.merge.empty()) return merge(typed);
  if (typed.wants_log) return diagnose_logs(typed);
  if (typed.peer.listens()) return run_listener(typed.peer, given_facts);
  if (typed.peer.wanted())
    return examine_peers(typed.peer, {typed.json, colourful(), typed.verbose}, given_facts);
  examine(typed);
}

constexpr auto footer =
    "It needs no root: what it may not read it names, with the privilege that is missing.\n"
    "Exit status: 0 nothing found (checks that could not be read do not count), 2 warnings (or hosts\n"
    "that differ), 3 failures, 1 it could not do its work, or was called wrongly.\n\n"
    "Examples:\n"
    "  beeline doctor                          what is wrong here, worst first\n"
    "  beeline doctor --only roce,nic.mtu      a group and a check\n"
    "  beeline doctor --explain roce.dscp      what a check looks at, and where it comes from\n"
    "  beeline doctor --record host.tar.zst --pseudonymise      for somebody else to read\n"
    "  beeline doctor --root host.tar.zst      reads such a recording\n"
    "  srun --ntasks-per-node=1 beeline doctor         only what differs between the hosts\n"
    "  mpirun --map-by ppr:1:node beeline doctor       the same\n"
    "  beeline doctor --log rank*.log          what a job's logs say: who failed first, and why\n"
    "  kubectl logs job/train | beeline doctor --log -\n"
    "  beeline doctor --merge *.json           what differs between reports that --json wrote\n"
    "  beeline doctor --listen                 waits for doctors of other hosts; then, on one of those:\n"
    "  beeline doctor --peer node2 node3       compares and tests each rail with them\n"
    "  beeline doctor --peer node2 --ssh       the same; starts the listener there itself\n";

}  // namespace

void add_doctor(CLI::App& app) {
  auto* command = app.add_subcommand("doctor", "What is wrong with this host's RoCE network");
  command->footer(footer);
  auto typed = std::make_shared<Arguments>();
  command->add_flag("--json", typed->json, "Print JSON");
  command->add_option("--only", typed->only, "Only these groups or checks, separated by commas")
      ->option_text("GROUP|CHECK,...");
  command->add_option("--explain", typed->explain, "What one check looks at, explains and rests on")
      ->option_text("CHECK");
  command->add_flag("--list", typed->list, "List groups and checks");
  command->add_flag("-v,--verbose", typed->verbose, "Also what is fine, and everything that was read");
  auto* root = command
                   ->add_option("--root", typed->root,
                                "Examine a recording or a copied file tree instead of this host")
                   ->option_text("PATH");
  auto* record =
      command
          ->add_option("--record", typed->record, "Write what the checks read to a file; secrets are removed")
          ->option_text("FILE.tar.zst");
  command->add_flag("--pseudonymise", typed->pseudonymise,
                    "With --record: replace names and addresses, consistently");
  command->add_flag("--force", typed->force, "With --record: replace a file that exists");
  auto* merge =
      command->add_option("--merge", typed->merge, "Show what differs between reports of several hosts")
          ->option_text("A.json B.json ...");
  auto* log = command->add_option("--log", typed->logs, "What these logs say (none, or -: standard input)")
                  ->expected(0, CLI::detail::expected_max_vector_size)
                  ->option_text("FILE ...");
  merge->excludes(root)->excludes(record);
  log->excludes(root)->excludes(record)->excludes(merge);
  add_peer_options(*command, typed->peer);
  add_rank_options(*command, typed->ranks);
  for (const auto* alone : {"--peer", "--listen"})
    for (const auto* other : {"--root", "--record", "--merge", "--only", "--log"})
      command->get_option(alone)->excludes(command->get_option(other));
  for (const auto* together : {"--compare", "--rendezvous", "--rank"})
    for (const auto* other : {"--record", "--merge", "--log", "--peer", "--listen", "--list", "--explain"})
      command->get_option(together)->excludes(command->get_option(other));
  command->callback([typed, log] {
    typed->wants_log = log->count() > 0;
    if (typed->logs == std::vector<std::string>{""}) typed->logs.clear();
    start(*typed);
  });
}

}  // namespace beeline::cli
