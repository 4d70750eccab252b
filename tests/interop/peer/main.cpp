// verbs_peer: two of these, on any two cards, try every case of the table at each other,
// each end once as requester and once as responder.
//
//   verbs_peer --listen --bind 10.77.0.1 -d bee0           one end waits
//   verbs_peer 10.77.0.1 -d rxe0 [--cases send,read]       the other one leads and reports

#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>

#include "cli/engine.h"
#include "play.h"

namespace beeline::interop {
namespace {

struct Arguments {
  std::string host, bind, device, cases, json_path;
  std::uint16_t tcp_port = 18600;
  std::uint32_t mtu = 1024;
  int gid_index = -1;
  bool listen = false, list = false;
};

Result<Card> open_card(verbs::Provider& provider, const Arguments& typed) {
  Card card;
  card.provider = &provider;
  BEELINE_TRY(card.context, verbs::open_device(provider, typed.device));
  BEELINE_TRY(card.gid,
              verbs::choose_gid(provider, card.context.get(), card.port,
                                typed.gid_index < 0 ? std::nullopt : std::optional(typed.gid_index)));
  card.mtu_bytes = typed.mtu;
  return card;
}

Result<void> serve(const Card& card, const Arguments& typed) {
  BEELINE_TRY(Control control, Control::accept(typed.bind, typed.tcp_port, 120s));
  for (;;) {
    BEELINE_TRY(const Json order, control.receive(120s));
    if (order.contains("end")) return {};
    const Case* which = find_case(order.at("case").get<std::string>());
    if (which == nullptr) return fail(Errc::protocol, "no case {}", order.at("case").dump());
    auto outcome = play(card, *which, !order.at("leader_requests").get<bool>(),
                        order.at("mtu").get<std::uint32_t>(), control);
    if (!outcome) {
      (void)control.send({{"failure", outcome.error().message}});
      return tl::unexpected(outcome.error());
    }
    BEELINE_TRY_VOID(control.send(*outcome));
  }
}

std::string summary(const Json& outcome) {
  std::string text = outcome.at("statuses").dump();
  if (text.size() > 24) text = text.substr(0, 20) + "...]";
  return text;
}

// Leads one case in one direction. True when both ends are content.
Result<bool> lead_one(const Card& card, const Case& which, bool leader_requests, Control& control,
                      Json& record) {
  BEELINE_TRY_VOID(
      control.send({{"case", which.name}, {"leader_requests", leader_requests}, {"mtu", card.mtu_bytes}}));
  auto mine = play(card, which, leader_requests, card.mtu_bytes, control);
  if (!mine) {
    (void)control.send({{"failure", mine.error().message}});
    return tl::unexpected(mine.error());
  }
  BEELINE_TRY(const Json theirs, control.receive(120s));
  const Json& requester = leader_requests ? *mine : theirs;
  const Json& responder = leader_requests ? theirs : *mine;
  const std::string wrong =
      requester.at("wrong").get<std::string>() + responder.at("wrong").get<std::string>();
  std::printf("%-4s %-26s %-9s requester %-24s responder %-24s state %d/%d%s%s\n",
              wrong.empty() ? "ok" : "FAIL", std::string(which.name).c_str(),
              leader_requests ? "leader" : "listener", summary(requester).c_str(), summary(responder).c_str(),
              requester.at("state").get<int>(), responder.at("state").get<int>(), wrong.empty() ? "" : "  ",
              wrong.c_str());
  std::fflush(stdout);
  record.push_back({{"case", which.name},
                    {"requester_is", leader_requests ? "leader" : "listener"},
                    {"requester", requester},
                    {"responder", responder}});
  return wrong.empty();
}

std::vector<const Case*> chosen(const std::string& names) {
  std::vector<const Case*> cases;
  std::stringstream stream(names);
  for (std::string name; std::getline(stream, name, ',');) {
    cases.push_back(find_case(name));
    if (cases.back() == nullptr) throw CLI::ValidationError("--cases", "no case " + name + "; see --list");
  }
  if (cases.empty())
    for (const Case& each : all_cases()) cases.push_back(&each);
  return cases;
}

Result<int> lead(const Card& card, const Arguments& typed) {
  const auto cases = chosen(typed.cases);
  BEELINE_TRY(Control control, Control::connect(typed.host, typed.tcp_port, 60s));
  Json record = Json::array();
  int passed = 0, failed = 0;
  for (const bool leader_requests : {true, false})
    for (const Case* which : cases) {
      BEELINE_TRY(const bool content, lead_one(card, *which, leader_requests, control, record));
      ++(content ? passed : failed);
    }
  BEELINE_TRY_VOID(control.send({{"end", true}}));
  if (!typed.json_path.empty()) {
    std::FILE* file = std::fopen(typed.json_path.c_str(), "w");
    if (file == nullptr) return fail_errno(errno, "writing " + typed.json_path);
    std::fputs(record.dump(1).c_str(), file);
    std::fclose(file);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

Result<int> run(const Arguments& typed) {
  BEELINE_TRY(auto engine, cli::open_engine());
  BEELINE_TRY(const Card card, open_card(*engine.provider, typed));
  if (!typed.listen) return lead(card, typed);
  return serve(card, typed).map([] { return 0; });
}

}  // namespace
}  // namespace beeline::interop

int main(int argc, char** argv) {
  using namespace beeline::interop;
  Arguments typed;
  CLI::App app{"Tries two cards at each other: every operation, size and fault, from both ends."};
  app.add_option("host", typed.host, "The end that listens");
  app.add_flag("--listen", typed.listen, "Wait for the other end");
  app.add_option("--bind", typed.bind, "Address to listen at");
  app.add_option("-p,--port", typed.tcp_port, "TCP port on which the ends agree")->capture_default_str();
  app.add_option("-d,--ib-dev", typed.device, "Device");
  app.add_option("-x,--gid-index", typed.gid_index, "GID index");
  app.add_option("-m,--mtu", typed.mtu, "Path MTU")->capture_default_str();
  app.add_option("--cases", typed.cases, "Only these (names, with commas)");
  app.add_option("--json", typed.json_path, "Also write what both ends saw to this file");
  app.add_flag("--list", typed.list, "Name the cases");
  CLI11_PARSE(app, argc, argv);
  if (typed.list) {
    for (const Case& each : all_cases()) std::printf("%s\n", std::string(each.name).c_str());
    return 0;
  }
  if (typed.listen == !typed.host.empty()) {
    std::fprintf(stderr, "verbs_peer: give --listen, or the host that listens\n");
    return 2;
  }
  try {
    const auto status = run(typed);
    if (status) return *status;
    std::fprintf(stderr, "verbs_peer: %s\n", status.error().message.c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "verbs_peer: %s\n", e.what());
  }
  return 1;
}
