// beeline doctor --peer and --listen: what is wrong between two hosts.
#include "cli/doctor_peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <thread>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/engine.h"
#include "doctor/host/live.h"
#include "doctor/host/report.h"
#include "doctor/peer/checks.h"
#include "doctor/peer/listener.h"
#include "doctor/printable.h"

extern char** environ;

namespace beeline::cli {
namespace {

namespace peer = doctor::peer;

constexpr Duration connect_timeout = 10s, end_timeout = 5s;

using Facts = std::function<std::map<std::string, std::string>()>;

// Without a card of ours everything but the RC ping works.
std::optional<Engine> engine_if_any() {
  auto engine = open_engine();
  if (engine) return std::move(*engine);
  std::fprintf(stderr, "beeline: no RC ping from here: %s\n", engine.error().message.c_str());
  return std::nullopt;
}

peer::HostFacts describe(const Facts& facts, verbs::Provider* provider) {
  doctor::LiveHost evidence(facts());
  return peer::describe_host(evidence, provider);
}

// `ssh HOST beeline doctor --stdio`, spoken to through a socket pair.
class RemoteListener {
 public:
  static Result<std::unique_ptr<RemoteListener>> start(const std::string& host, const std::string& program) {
    // What begins with "-" would be an option of ssh.
    if (host.empty() || host.front() == '-')
      return fail(Errc::invalid_argument, "--peer '{}': not a host", host);
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return fail_errno(errno, "making a socket pair");
    Descriptor mine(ends[0]);
    const Descriptor theirs(ends[1]);
    std::vector<std::string> words = {"ssh", "-T", "-o", "BatchMode=yes", host, program, "doctor", "--stdio"};
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    pid_t pid = -1;
    const int error = ::posix_spawnp(&pid, "ssh", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return fail_errno(error, "starting ssh");
    return std::unique_ptr<RemoteListener>(new RemoteListener(peer::Channel(std::move(mine), host), pid));
  }
  RemoteListener(const RemoteListener&) = delete;
  RemoteListener& operator=(const RemoteListener&) = delete;
  ~RemoteListener() {
    channel_.reset();  // it ends when its input does
    const auto deadline = monotonic_now() + end_timeout;
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (monotonic_now() > deadline) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  peer::Channel& channel() { return *channel_; }

 private:
  RemoteListener(peer::Channel channel, pid_t pid) : channel_(std::move(channel)), pid_(pid) {}
  std::optional<peer::Channel> channel_;
  pid_t pid_;
};

std::uint16_t port_of(const PeerArguments& typed) {
  return typed.port != 0 ? typed.port : peer::default_port;
}

Result<std::unique_ptr<peer::Measured>> measure_one(const PeerArguments& typed, const std::string& host,
                                                    const peer::HostFacts& here, verbs::Provider* provider) {
  if (typed.ssh) {
    BEELINE_TRY(const auto remote, RemoteListener::start(host, typed.remote_program));
    auto measured = peer::measure(remote->channel(), here, provider);
    if (!measured && measured.error().code == Errc::peer_lost)
      return fail(Errc::peer_lost, "`ssh {} {} doctor --stdio` ended early: {}", host, typed.remote_program,
                  measured.error().message);
    return measured;
  }
  BEELINE_TRY(auto channel, peer::connect_to(host, port_of(typed), connect_timeout));
  return peer::measure(channel, here, provider);
}

}  // namespace

void add_peer_options(CLI::App& command, PeerArguments& typed) {
  auto* peers = command.add_option("--peer", typed.hosts, "Compare and test with these hosts, rail by rail")
                    ->option_text("HOST ...");
  command.add_option("--port", typed.port, "With --peer: the listener's TCP port (default: 18791)")
      ->check(between(1, 65535))
      ->needs(peers)
      ->option_text("PORT");
  auto* ssh =
      command.add_flag("--ssh", typed.ssh, "With --peer: start the listener there over ssh")->needs(peers);
  command.add_option("--ssh-program", typed.remote_program, "With --ssh: where beeline is on the other host")
      ->needs(ssh)
      ->option_text("PATH");
  typed.listen = command
                     .add_option("--listen", typed.listen_port,
                                 "Wait for doctors of other hosts, on this TCP and UDP port (default: 18791)")
                     ->expected(0, 1)
                     ->default_str(std::to_string(peer::default_port))
                     ->check(between(1, 65535))
                     ->option_text("[PORT]");
  typed.listen->excludes(peers);
  command.add_flag("--stdio", typed.stdio)->group("");  // what --ssh starts
}

void run_listener(const PeerArguments& typed, const Facts& facts) {
  // Opened for each client: links and addresses come and go while it listens.
  std::optional<Engine> engine;
  const auto open_cards = [&engine]() -> verbs::Provider* {
    engine.reset();
    engine = engine_if_any();
    return engine ? engine->provider.get() : nullptr;
  };
  const peer::Host host{open_cards, [&](verbs::Provider* provider) { return describe(facts, provider); }};
  if (typed.stdio) {
    ::signal(SIGPIPE, SIG_IGN);
    peer::Channel channel(Descriptor(STDIN_FILENO), Descriptor(STDOUT_FILENO), "the other end of ssh");
    if (const auto served = peer::serve_client(channel, host, peer::default_port); !served)
      give_up(served.error());
    return;
  }
  auto listener = peer::Listener::open(typed.listen_port);
  if (!listener) give_up(listener.error());
  std::printf(
      "listening on TCP port %u; UDP tests on the same number, RC pings on UDP 4791; Ctrl-C ends it\n",
      unsigned{listener->port()});
  std::fflush(stdout);
  const std::atomic<bool> never = false;
  listener->run(
      host,
      [](const std::string& line) {
        std::printf("%s\n", doctor::printable(line).c_str());
        std::fflush(stdout);
      },
      never);
}

void examine_peers(const PeerArguments& typed, const PeerView& view, const Facts& facts) {
  auto engine = engine_if_any();
  auto* provider = engine ? engine->provider.get() : nullptr;
  doctor::Report report;
  const auto here = describe(facts, provider);
  report.host = here.name;
  for (const auto& host : typed.hosts) {
    const auto measured = measure_one(typed, host, here, provider);
    auto results = measured ? peer::judge(**measured, host)
                            : peer::unreached(measured.error(), host, {typed.ssh, port_of(typed)});
    if (auto remark = measured ? peer::remark(**measured, host) : std::string(); !remark.empty())
      report.remarks.push_back(std::move(remark));
    for (auto& result : results) report.results.push_back(std::move(result));
  }
  const auto text =
      view.json ? doctor::to_json(report) : doctor::to_text(report, {view.colour, view.verbose});
  std::fputs(text.c_str(), stdout);
  if (const int status = doctor::exit_status(report); status != 0) throw CLI::RuntimeError(status);
}

}  // namespace beeline::cli
