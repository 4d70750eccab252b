#include "doctor/peer/measure.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/random.h"
#include "doctor/peer/datagram.h"
#include "doctor/peer/probe.h"
#include "doctor/peer/rc_end.h"
#include "doctor/printable.h"

namespace beeline::doctor::peer {
namespace {

constexpr std::size_t most_pairs = 1024, most_pings = 256;
constexpr Duration answer_timeout = 20s, ping_timeout = 6s;

// This host's addresses with their netmasks: who is on the same wire.
std::map<IpAddress, IpAddress> netmasks() {
  std::map<IpAddress, IpAddress> all;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return all;
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_netmask == nullptr) continue;
    const auto family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage address{}, mask{};
    const std::size_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address, i->ifa_addr, bytes);
    std::memcpy(&mask, i->ifa_netmask, bytes);
    mask.ss_family = family;
    all[address_of(address)] = address_of(mask);
  }
  ::freeifaddrs(first);
  return all;
}

bool same_subnet(const IpAddress& a, const IpAddress& b, const std::map<IpAddress, IpAddress>& masks) {
  const auto mask = masks.find(a);
  if (mask == masks.end()) return false;
  for (std::size_t i = a.is_v4() ? 12 : 0; i < 16; ++i)
    if ((a.bytes[i] & mask->second.bytes[i]) != (b.bytes[i] & mask->second.bytes[i])) return false;
  return true;
}

// Rails that share a subnet belong together; where none does, the first faces the first.
void find_rails(Measured& measured) {
  const auto masks = netmasks();
  std::set<const Rail*> placed;
  for (auto& pair : measured.pairs)
    if (same_subnet(pair.here, pair.there, masks)) {
      pair.same_rail = true;
      placed.insert({pair.here_rail, pair.there_rail});
    }
  for (auto& pair : measured.pairs)
    if (placed.count(pair.here_rail) == 0 && placed.count(pair.there_rail) == 0)
      pair.same_rail =
          pair.here_rail - measured.here.rails.data() == pair.there_rail - measured.there.rails.data();
}

void read_doors(Measured& measured, const nlohmann::json& ready) {
  const auto doors = ready.find("echo");
  if (doors == ready.end() || !doors->is_array()) return;
  std::map<IpAddress, std::uint16_t> ports;
  for (const auto& door : *doors) {
    if (!door.is_object() || !door.contains("address") || !door["address"].is_string() ||
        !door.contains("port") || !door["port"].is_number_unsigned())
      continue;
    const auto port = door["port"].get<std::uint64_t>();
    if (const auto address = parse_address(door["address"].get<std::string>()); address && port < 65536)
      ports[*address] = static_cast<std::uint16_t>(port);
  }
  for (auto& pair : measured.pairs)
    if (const auto found = ports.find(pair.there); found != ports.end()) pair.port = found->second;
}

std::string text_of(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string() ? printable(found->get<std::string>()) : std::string();
}

// A Result for what ends the conversation; what the ping found is in the pair.
beeline::Result<void> ping(Channel& channel, Pair& pair, verbs::Provider& provider) {
  auto& rc = pair.rc.emplace();
  auto end = RcEnd::create(provider, pair.here_rail->device, pair.here);
  if (!end) {
    rc.text = end.error().message;
    return {};
  }
  BEELINE_TRY_VOID(channel.send({{"type", "rc"},
                                 {"device", pair.there_rail->device},
                                 {"gid", to_string(pair.there)},
                                 {"end", end->info()}}));
  BEELINE_TRY(const auto answer, channel.receive(answer_timeout));
  if (text_of(answer, "type") == "rc_refused") {
    rc.text = "refused there: " + text_of(answer, "text");
    return {};
  }
  if (text_of(answer, "type") != "rc_ready" || !answer.contains("end"))
    return fail(Errc::protocol, "{} does not answer an RC ping as a doctor does", channel.peer());
  const auto seed = secure_random();
  auto done = end->connect(answer["end"]);
  if (done) done = end->ping(seed, ping_timeout);
  nlohmann::json ask = {{"type", "rc_check"}};
  if (done) ask["seed"] = seed;
  BEELINE_TRY_VOID(channel.send(ask));
  BEELINE_TRY(const auto result, channel.receive("rc_result", answer_timeout));
  rc.unreached = !done && done.error().code == Errc::timed_out;
  rc.text = !done ? done.error().message : text_of(result, "text");
  if (done && !rc.text.empty()) rc.text = "acknowledged, but there: " + rc.text;
  rc.ok = rc.text.empty();
  return {};
}

beeline::Result<void> ping_all(Channel& channel, Measured& measured, verbs::Provider* provider) {
  std::size_t pings = 0;
  // What belongs together comes first, should there be too many.
  for (const bool same_rail : {true, false})
    for (auto& pair : measured.pairs) {
      if (provider == nullptr || pair.same_rail != same_rail || !pair.here_rail->driven ||
          !pair.there_rail->driven || pings == most_pings)
        continue;
      ++pings;
      BEELINE_TRY_VOID(ping(channel, pair, *provider));
    }
  return {};
}

}  // namespace

std::string Pair::ends() const {
  return fmt::format("{} {} -> {} {}", here_rail->device, to_string(here), there_rail->device,
                     to_string(there));
}

void add_pairs(Measured& measured) {
  std::set<IpAddress> ours, theirs;
  const bool loopback = measured.here.only_loopback() && measured.there.only_loopback();
  for (const auto& rail : measured.here.rails)
    for (const auto& address : rail.addresses(loopback)) ours.insert(address);
  for (const auto& rail : measured.there.rails)
    for (const auto& address : rail.addresses(loopback)) theirs.insert(address);
  measured.same_host = !ours.empty() && ours == theirs;
  for (const auto& here_rail : measured.here.rails)
    for (const auto& there_rail : measured.there.rails)
      for (const auto& here : here_rail.addresses(loopback))
        for (const auto& there : there_rail.addresses(loopback)) {
          // An address that both have is no way from one to the other.
          if (here.is_v4() != there.is_v4() || theirs.count(here) != 0 || ours.count(there) != 0) continue;
          if (measured.pairs.size() == most_pairs) {
            ++measured.left_out;
            continue;
          }
          Pair pair;
          pair.here_rail = &here_rail;
          pair.there_rail = &there_rail;
          pair.here = here;
          pair.there = there;
          measured.pairs.push_back(std::move(pair));
        }
  find_rails(measured);
}

beeline::Result<std::unique_ptr<Measured>> measure(Channel& channel, HostFacts here,
                                                   verbs::Provider* provider) {
  auto measured = std::make_unique<Measured>();
  measured->here = std::move(here);
  BEELINE_TRY_VOID(channel.send({{"type", "hello"}, {"program", "beeline doctor"}, {"version", 1}}));
  BEELINE_TRY(const auto told, channel.receive("host", answer_timeout));
  BEELINE_TRY(measured->there, host_from_json(told));
  BEELINE_TRY_VOID(channel.send(to_json(measured->here)));
  BEELINE_TRY(const auto ready, channel.receive("ready", answer_timeout));
  const auto secret = ready.find("secret");
  if (secret == ready.end() || !secret->is_number_unsigned())
    return fail(Errc::protocol, "{} does not speak the language of beeline doctor", channel.peer());
  const auto word = secret->get<std::uint64_t>();
  add_pairs(*measured);
  read_doors(*measured, ready);
  measured->driver_here = provider != nullptr;
  probe_reach(measured->pairs, word);
  for (auto& pair : measured->pairs) {
    if (!pair.same_rail || !pair.echo.answered) continue;
    BEELINE_TRY_VOID(channel.send({{"type", "alive"}}));
    pair.mtu = probe_mtu(pair, word);
    BEELINE_TRY_VOID(channel.send({{"type", "alive"}}));
    pair.ports = probe_ports(pair, word);
  }
  BEELINE_TRY_VOID(ping_all(channel, *measured, provider));
  BEELINE_TRY_VOID(channel.send({{"type", "bye"}}));
  return measured;
}

}  // namespace beeline::doctor::peer
