#include "cli/doctor_ranks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "base/random.h"
#include "bootstrap/meeting.h"
#include "bootstrap/mesh.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/ranks/meeting.h"
#include "cli/ranks/noticeboard.h"
#include "doctor/host/merge.h"

namespace beeline::cli {
namespace {

using bootstrap::Deadline;
using bootstrap::Endpoint;

constexpr Duration board_patience = 20s, goodbye_patience = 5s, names_patience = 3s;
// Below those that kernels give away.
constexpr unsigned first_port = 20000, port_count = 10000, port_tries = 3;
constexpr std::size_t most_places = 12, most_named = 8;

std::optional<std::string> variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// How the ranks of this job meet.
struct Way {
  std::unique_ptr<Noticeboard> board;  // else rank 0 is at one of these, with a secret that all can compute:
  std::vector<std::string> hosts;
  std::vector<std::uint16_t> ports;
  Secret secret{};
};

std::unique_ptr<Noticeboard> open_board(const Job& job) {
  const Deadline deadline(board_patience);
  if (job.has_pmix)
    if (auto board = open_pmix(deadline)) return std::move(*board);
  if (job.pmi_descriptor)
    if (auto board = open_pmi(*job.pmi_descriptor, deadline)) return std::move(*board);
  return nullptr;
}

Result<Way> choose_way(const RankArguments& typed, const Job& job) {
  Way way;
  way.secret = secret_of("secret", job.key);
  if (!typed.rendezvous.empty()) {
    BEELINE_TRY(const auto place, bootstrap::parse_host_port(typed.rendezvous));
    way.hosts = {place.host};
    way.ports = {place.port};
    return way;
  }
  way.board = open_board(job);
  if (way.board) return way;
  if (job.rank0_hosts.empty())
    return fail(
        Errc::unsupported,
        "{} does not tell where rank 0 is: give --rendezvous HOST:PORT, an address of rank 0's host and a "
        "port that is free there (or --no-compare)",
        job.launcher);
  way.hosts = job.rank0_hosts;
  for (unsigned i = 0; i < port_tries; ++i) {
    const auto drawn = secret_of("port" + std::to_string(i), job.key);
    way.ports.push_back(static_cast<std::uint16_t>(first_port + load_be32(drawn.data()) % port_count));
  }
  return way;
}

// "host key;secret;address:port,address:port": no blanks, which PMI does not take.
std::string to_notice(const std::vector<Endpoint>& endpoints, const Secret& secret) {
  auto text = bootstrap::own_host_key() + ";";
  for (const auto byte : secret) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  const char* between = ";";
  for (std::size_t i = 0; i < std::min(endpoints.size(), most_places); ++i) {
    text += between + bootstrap::to_string(endpoints[i]);
    between = ",";
  }
  return text;
}

std::vector<std::string> pieces(const std::string& text, char separator) {
  std::vector<std::string> out;
  for (std::size_t start = 0; start <= text.size();) {
    const auto end = std::min(text.find(separator, start), text.size());
    out.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return out;
}

struct Notice {
  std::vector<Endpoint> places;
  Secret secret{};
};

Result<Notice> parse_notice(const std::string& text) {
  const auto parts = pieces(text, ';');
  Notice notice;
  if (parts.size() != 3 || parts[1].size() != 2 * notice.secret.size())
    return fail(Errc::protocol,
                "what rank 0 posted is no meeting point: use one version of beeline on all hosts");
  for (std::size_t i = 0; i < notice.secret.size(); ++i)
    notice.secret[i] = static_cast<std::byte>(std::strtoul(parts[1].substr(2 * i, 2).c_str(), nullptr, 16));
  const bool same_host = parts[0] == bootstrap::own_host_key();
  for (const auto& each : pieces(parts[2], ',')) {
    BEELINE_TRY(const auto place, bootstrap::parse_host_port(each));
    BEELINE_TRY(const auto addresses, bootstrap::resolve(place.host));
    for (const auto& address : addresses)
      if (same_host || !address.is_loopback()) notice.places.push_back({address, place.port});
  }
  return notice;
}

// Rank 0's own host may know itself by a name for an address that nobody listens on (127.0.1.1): loopback,
// too.
Result<Notice> expected_places(const Way& way) {
  Notice notice{{}, way.secret};
  std::string unknown;
  for (const auto& host : way.hosts) {
    const auto addresses = bootstrap::resolve(host);
    if (!addresses) unknown = addresses.error().message;
    for (const auto port : way.ports)
      for (const auto& address : addresses.value_or(std::vector<IpAddress>{}))
        notice.places.push_back({address, port});
  }
  if (notice.places.empty())
    return fail(Errc::not_found, "{}; --rendezvous HOST:PORT says where rank 0 is", unknown);
  for (const auto port : way.ports) notice.places.push_back({IpAddress::v4(127, 0, 0, 1), port});
  return notice;
}

Result<int> follow(const RankArguments& typed, const Job& job, const std::string& report) {
  const Deadline deadline(std::chrono::seconds(typed.wait_s));
  BEELINE_TRY(const auto way, choose_way(typed, job));
  Result<Notice> notice = fail(Errc::internal, "no notice");
  if (way.board) {
    const auto word = way.board->read(deadline);
    way.board->leave(deadline.sooner(goodbye_patience));
    notice = word ? parse_notice(*word)
                  : fail(word.error().code, "rank 0 posted no meeting point within {} s ({})", typed.wait_s,
                         word.error().message);
  } else {
    notice = expected_places(way);
  }
  if (!notice) return tl::unexpected(notice.error());
  const auto host = job.node.empty() ? bootstrap::own_identity().host : job.node;
  BEELINE_TRY(const auto rank0, find_rank0(notice->places, notice->secret, job.rank, host, deadline));
  // Rank 0 may have begun to wait only now, and waits as long as we.
  return bring(rank0, report, Deadline(std::chrono::seconds(2 * typed.wait_s + 30)));
}

// Who did not come, by host where somebody knows that.
std::vector<std::string> name_missing(const Job& job, const std::vector<std::optional<Contribution>>& all,
                                      Noticeboard* board) {
  const Deadline deadline(names_patience);
  std::map<std::string, std::vector<Rank>> by_host;
  std::set<std::string> answered = {job.node};
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const auto number = static_cast<int>(rank);
    if (all[rank])
      answered.insert(all[rank]->host);
    else
      by_host[board != nullptr && !deadline.passed() ? board->host_of(number, deadline) : ""].push_back(
          Rank{number});
  }
  std::vector<std::string> out;
  for (auto& [host, ranks] : by_host) {
    const auto more = ranks.size() > most_named ? fmt::format(" and {} more", ranks.size() - most_named) : "";
    ranks.resize(std::min(ranks.size(), most_named));
    out.push_back(
        fmt::format("{}{}{}{}", host, host.empty() ? "" : ": ", bootstrap::list_ranks(ranks), more));
  }
  if (!out.empty())
    for (const auto& node : job.nodes)
      if (answered.count(node) == 0) out.push_back(node + ": none of its ranks");
  return out;
}

// Its own report, and those of the ranks that came.
std::vector<doctor::NamedText> reports_of(const std::string& own,
                                          const std::vector<std::optional<Contribution>>& all) {
  std::vector<doctor::NamedText> reports = {{"rank 0", own}};
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank]) reports.push_back({fmt::format("rank {}", rank), all[rank]->report});
  return reports;
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Nobody came: this host's own report is better than none.
void say_alone(const doctor::Report& report, const std::vector<std::string>& missing, int wait_s, bool json,
               const doctor::View& view) {
  std::string who;
  for (const auto& each : missing) who += (who.empty() ? "" : "; ") + each;
  std::fprintf(
      stderr,
      "beeline: no other rank answered within %d s (%s): this is rank 0's host alone; --no-compare asks "
      "for that\n",
      wait_s, who.c_str());
  print(json ? doctor::to_json(report) : doctor::to_text(report, view));
}

Result<int> lead(const RankArguments& typed, const Job& job, const doctor::Report& report, bool json,
                 const doctor::View& view) {
  const Deadline deadline(std::chrono::seconds(typed.wait_s));
  BEELINE_TRY(auto way, choose_way(typed, job));
  if (way.board) {
    for (auto& byte : way.secret) byte = static_cast<std::byte>(secure_random());
    way.ports = {0};
  }
  BEELINE_TRY(const auto addresses, bootstrap::own_addresses());
  auto collection = Collection::open(addresses, way.ports, job.size, way.secret);
  if (!collection) return tl::unexpected(collection.error());
  if (way.board) {
    BEELINE_TRY_VOID(way.board->post(to_notice(collection->endpoints(), way.secret), deadline));
  }
  const auto all = collection->collect(deadline);
  auto compared = doctor::compare_reports(reports_of(doctor::to_json(report), all), doctor::SameHost::fold);
  if (!compared) {
    collection->conclude(1);
    return tl::unexpected(compared.error());
  }
  compared->missing = name_missing(job, all, way.board.get());
  if (compared->reports == 1)
    say_alone(report, compared->missing, typed.wait_s, json, view);
  else
    print(json ? doctor::to_json(*compared) : doctor::to_text(*compared, view));
  // Said before any rank ends: a launcher ends all of them when the first leaves with a status.
  const int status = doctor::exit_status(*compared);
  collection->conclude(status);
  if (way.board) way.board->leave(Deadline(goodbye_patience));
  return status;
}

}  // namespace

void add_rank_options(CLI::App& command, RankArguments& typed) {
  auto* compare =
      command.add_flag("--compare", typed.compare,
                       "Compare with the other ranks that the launcher started (the default under "
                       "srun and mpirun)");
  command.add_flag("--no-compare", typed.alone, "Examine this host alone, also under a launcher")
      ->excludes(compare);
  command
      .add_option(
          "--rendezvous", typed.rendezvous,
          "Where the ranks meet: an address of rank 0's host, a free port (default: asks the launcher)")
      ->check(not_empty())
      ->option_text("HOST:PORT");
  auto* rank = command.add_option("--rank", typed.rank, "Where no launcher says it: which rank this is")
                   ->check(between(0, most_ranks - 1))
                   ->option_text("N");
  auto* size = command.add_option("--size", typed.size, "With --rank: how many ranks there are")
                   ->check(between(2, most_ranks))
                   ->needs(rank)
                   ->option_text("N");
  rank->needs(size)->needs(command.get_option("--rendezvous"));
  command.add_option("--wait", typed.wait_s, "How long ranks wait for each other (default: 60)")
      ->check(between(1, 3600))
      ->option_text("SECONDS");
}

std::optional<Job> job_to_compare(const RankArguments& typed) {
  if (typed.alone) return std::nullopt;
  if (typed.size != 0) {
    if (typed.rank >= typed.size)
      give_up({Errc::invalid_argument,
               fmt::format("--rank {} --size {}: ranks count from 0", typed.rank, typed.size)});
    Job job;
    job.rank = typed.rank;
    job.size = typed.size;
    job.launcher = "nobody";
    return job;
  }
  auto job = job_from(variable);
  if (!job) give_up(job.error());
  if (!*job && (typed.compare || !typed.rendezvous.empty()))
    give_up({Errc::not_found,
             "nothing to compare with: no launcher (mpirun, srun) started this process together with others; "
             "give "
             "--rank N --size N --rendezvous HOST:PORT"});
  return std::move(*job);
}

void compare_ranks(const RankArguments& typed, const Job& job, const doctor::Report& report, bool json,
                   const doctor::View& view) {
  const auto status =
      job.rank == 0 ? lead(typed, job, report, json, view) : follow(typed, job, doctor::to_json(report));
  if (!status)
    give_up({status.error().code, fmt::format("comparing the hosts of {} ranks, rank {}: {}", job.size,
                                              job.rank, status.error().message)});
  if (*status != 0) throw CLI::RuntimeError(*status);
}

}  // namespace beeline::cli
