#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "bootstrap/meeting.h"
#include "bootstrap/record.h"

namespace beeline::bootstrap {
namespace {

constexpr std::size_t max_host_bytes = 64;
constexpr std::size_t max_host_key_bytes = 128;
constexpr std::size_t max_endpoints = 32;

std::optional<IpAddress> address_of(const ifaddrs& entry) {
  IpAddress out;
  if (entry.ifa_addr->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, entry.ifa_addr, sizeof v4);
    out = IpAddress::v4(0, 0, 0, 0);
    std::memcpy(out.bytes.data() + 12, &v4.sin_addr, 4);
  } else if (entry.ifa_addr->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, entry.ifa_addr, sizeof v6);
    std::memcpy(out.bytes.data(), &v6.sin6_addr, 16);
  } else {
    return std::nullopt;
  }
  return out;
}

}  // namespace

std::vector<std::byte> encode_entry(const Entry& entry) {
  RecordWriter out;
  out.u64(entry.group_id).bytes(entry.knock).bytes(entry.answer).u32(entry.identity.pid);
  out.text(entry.identity.host.substr(0, max_host_bytes)).text(entry.host_key);
  const std::size_t count = std::min(entry.endpoints.size(), max_endpoints);
  out.u8(static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i)
    out.bytes(std::as_bytes(std::span(entry.endpoints[i].address.bytes))).u16(entry.endpoints[i].port);
  return out.take();
}

Result<Entry> decode_entry(Bytes bytes) {
  RecordReader in(bytes);
  Entry entry;
  entry.group_id = in.u64();
  in.exactly(entry.knock);
  in.exactly(entry.answer);
  entry.identity.pid = in.u32();
  entry.identity.host = printable(in.text(max_host_bytes), max_host_bytes);
  entry.host_key = in.text(max_host_key_bytes);
  const std::size_t count = in.u8();
  if (count > max_endpoints)
    return fail(
        Errc::protocol,
        "a rank's entry in the store lists {} addresses, and {} are the most: start all ranks with the "
        "same version of Beeline, and with a store of their own",
        count, max_endpoints);
  for (std::size_t i = 0; i < count; ++i) {
    Endpoint endpoint;
    in.exactly(std::as_writable_bytes(std::span(endpoint.address.bytes)));
    endpoint.port = in.u16();
    entry.endpoints.push_back(endpoint);
  }
  if (!in.complete())
    return fail(Errc::protocol,
                "what the store holds is not a Beeline rank's entry (a part of it is missing or has a wrong "
                "size): start all ranks with the same version of Beeline, and with a store of their own");
  return entry;
}

Identity own_identity() {
  std::array<char, max_host_bytes + 1> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  return {static_cast<std::uint32_t>(::getpid()), printable(host.data(), max_host_bytes)};
}

std::string own_host_key() {
  // Containers of one host have its boot id, but each its own network.
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat network {};
  if (::stat("/proc/self/ns/net", &network) != 0) network.st_ino = 0;
  return fmt::format("{}/{}", boot_id.substr(0, 64), network.st_ino);
}

Result<std::vector<IpAddress>> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return fail_errno(errno, "cannot list this host's addresses");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<IpAddress> out;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const auto address = address_of(*entry);
    if (address && !address->is_link_local()) out.push_back(*address);
  }
  std::stable_partition(out.begin(), out.end(), [](const IpAddress& a) { return !a.is_loopback(); });
  return out;
}

}  // namespace beeline::bootstrap
