#include "doctor/host/devices.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

constexpr auto infiniband = "/sys/class/infiniband";

// "4: ACTIVE" -> "ACTIVE"
std::string after_colon(const std::string& text) {
  const auto at = text.find(": ");
  return at == std::string::npos ? text : text.substr(at + 2);
}

std::string interface_of(Case& c, const std::string& device, const std::string& path) {
  if (auto name = c.text(path + "/gid_attrs/ndevs/0")) return *name;
  const auto names = c.names_in(std::string(infiniband) + "/" + device + "/device/net");
  if (names.size() == 1) return names.front();
  if (auto parent = c.text(std::string(infiniband) + "/" + device + "/parent")) return *parent;
  return {};
}

std::string driver_of(Case& c, const std::string& device) {
  const auto driver = c.link(std::string(infiniband) + "/" + device + "/device/driver");
  if (!driver.found()) return {};
  return driver.value.substr(driver.value.rfind('/') + 1);
}

Port read_port(Case& c, const std::string& device, const std::string& number_text) {
  Port port;
  port.device = device;
  port.number = static_cast<int>(number(number_text).value_or(1));
  port.path = fmt::format("{}/{}/ports/{}", infiniband, device, number_text);
  port.driver = driver_of(c, device);
  port.link_layer = c.text(port.path + "/link_layer").value_or("");
  port.state = after_colon(c.text(port.path + "/state").value_or(""));
  port.rate_gbps = decimal(c.text(port.path + "/rate").value_or("")).value_or(0);
  if (port.roce()) port.netdev = interface_of(c, device, port.path);
  return port;
}

template <class Wanted>
std::vector<Port> active_ports(Case& c, Wanted wanted, const char* what) {
  std::vector<Port> chosen;
  const auto all = ports(c);
  for (const auto& port : all)
    if (wanted(port) && port.active()) chosen.push_back(port);
  if (chosen.empty())
    c.not_applicable(all.empty() ? "no RDMA device" : fmt::format("no {} that is ACTIVE", what));
  return chosen;
}

}  // namespace

std::vector<std::string> rdma_devices(Case& c) { return c.names_in(infiniband); }

std::vector<Port> ports(Case& c) {
  std::vector<Port> all;
  for (const auto& device : rdma_devices(c))
    for (const auto& number : c.names_in(fmt::format("{}/{}/ports", infiniband, device)))
      all.push_back(read_port(c, device, number));
  return all;
}

std::vector<Port> active_roce_ports(Case& c) {
  return active_ports(
      c, [](const Port& port) { return port.roce(); }, "RoCE port");
}

std::vector<Port> active_roce_cards(Case& c) {
  return active_ports(
      c, [](const Port& port) { return port.roce_card(); }, "RoCE port of a card");
}

std::vector<Port> roce_card_interfaces(Case& c) {
  std::vector<Port> distinct;
  const auto cards = active_roce_cards(c);
  for (const auto& port : cards)
    if (!port.netdev.empty() && std::none_of(distinct.begin(), distinct.end(),
                                             [&](const Port& other) { return other.netdev == port.netdev; }))
      distinct.push_back(port);
  if (distinct.empty() && !cards.empty())
    c.not_applicable("no network interface belongs to the RoCE ports here");
  return distinct;
}

std::vector<GidEntry> gids(Case& c, const Port& port) {
  std::vector<GidEntry> used;
  for (const auto& slot : c.names_in(port.path + "/gids")) {
    const auto text = c.text(port.path + "/gids/" + slot);
    const auto index = number(slot);
    const auto address = parse_address(trim(text.value_or("")));
    if (!index || !address || address->is_zero()) continue;
    GidEntry gid;
    gid.index = static_cast<int>(*index);
    gid.gid = *address;
    gid.text = *text;
    if (const auto type = c.text(port.path + "/gid_attrs/types/" + slot)) {
      gid.type_known = true;
      gid.v2 = *type == "RoCE v2";
    }
    gid.netdev = c.text(port.path + "/gid_attrs/ndevs/" + slot).value_or("");
    used.push_back(gid);
  }
  std::sort(used.begin(), used.end(), [](const GidEntry& a, const GidEntry& b) { return a.index < b.index; });
  return used;
}

std::vector<Address> addresses(Case& c) {
  std::vector<Address> all;
  for (const auto& line : lines_of(c.fact("addresses").value)) {
    const auto words = split(line, " /");
    if (words.size() == 3)
      all.push_back({words[0], words[1], static_cast<int>(number(words[2]).value_or(0))});
  }
  return all;
}

std::optional<std::uint32_t> parse_ipv4(std::string_view text) {
  in_addr address{};
  if (::inet_pton(AF_INET, std::string(text).c_str(), &address) != 1) return std::nullopt;
  return ntohl(address.s_addr);
}

std::uint32_t ipv4_mask(int prefix) {
  return prefix <= 0 ? 0U : ~std::uint32_t{0} << (32 - std::min(prefix, 32));
}

bool public_address(std::uint32_t address) {
  struct Range {
    std::uint32_t first;
    int prefix;
  };
  constexpr std::array reserved = {Range{0x00000000, 8},  Range{0x0A000000, 8},  Range{0x64400000, 10},
                                   Range{0x7F000000, 8},  Range{0xA9FE0000, 16}, Range{0xAC100000, 12},
                                   Range{0xC0000000, 24}, Range{0xC0000200, 24}, Range{0xC0A80000, 16},
                                   Range{0xC6120000, 15}, Range{0xC6336400, 24}, Range{0xCB007100, 24},
                                   Range{0xE0000000, 3}};
  return std::none_of(reserved.begin(), reserved.end(),
                      [&](const Range& range) { return (address & ipv4_mask(range.prefix)) == range.first; });
}

std::vector<std::string> pci_chain(Case& c, const std::string& device_link) {
  std::vector<std::string> chain;
  const auto target = c.link(device_link);
  if (!target.found()) return chain;
  std::string path;
  for (const auto& part : split(target.value, "/")) {
    path += "/" + part;
    const bool function = part.size() >= 12 && part[4] == ':' && part[7] == ':' && part[10] == '.';
    if (function) chain.push_back(path);
  }
  return chain;
}

std::vector<Card> pci_cards(Case& c) {
  std::vector<Card> cards;
  for (const auto& port : ports(c)) {
    const auto chain = pci_chain(c, std::string(infiniband) + "/" + port.device + "/device");
    if (chain.empty()) continue;
    const double rate = port.active() ? port.rate_gbps : 0;
    const auto same = std::find_if(cards.begin(), cards.end(),
                                   [&](const Card& card) { return card.device == port.device; });
    if (same != cards.end())
      same->rate_gbps += rate;
    else
      cards.push_back({port.device, chain, rate});
  }
  if (cards.empty()) c.not_applicable("no RDMA device on the PCI bus");
  return cards;
}

std::vector<Gpu> gpus(Case& c) {
  std::vector<Gpu> all;
  for (const auto& function : c.names_in("/sys/bus/pci/devices")) {
    const auto path = "/sys/bus/pci/devices/" + function;
    const auto kind = c.text(path + "/class").value_or("");
    const auto vendor = c.text(path + "/vendor").value_or("");
    const bool nvidia = vendor == "0x10de" && (starts_with(kind, "0x0302") || starts_with(kind, "0x0300"));
    const bool amd = vendor == "0x1002" && (starts_with(kind, "0x0380") || starts_with(kind, "0x1200"));
    if (nvidia || amd) all.push_back({path, nvidia});
  }
  return all;
}

bool in_container(Case& c) {
  return c.file("/.dockerenv").found() || c.file("/run/.containerenv").found() ||
         variable(c, "KUBERNETES_SERVICE_HOST").has_value();
}

std::optional<std::string> variable(Case& c, std::string_view name) {
  for (const auto& line : lines_of(c.fact("environment").value)) {
    const auto at = line.find('=');
    if (at != std::string::npos && std::string_view(line).substr(0, at) == name) return line.substr(at + 1);
  }
  return std::nullopt;
}

}  // namespace beeline::doctor
