#include "bootstrap/group.h"

#include <algorithm>
#include <charconv>

#include "bootstrap/meeting.h"
#include "bootstrap/store_protocol.h"
#include "bootstrap/tcp_store.h"

namespace beeline::bootstrap {
namespace {

constexpr int max_group_size = 1 << 20;

Result<void> check(const GroupOptions& options) {
  if (options.size > max_group_size)
    return fail(Errc::invalid_argument, "a group of {} ranks is too large: at most {} are possible",
                options.size, max_group_size);
  if (options.size < 1 || options.rank.value < 0 || options.rank.value >= options.size)
    return fail(Errc::invalid_argument, "rank {} of {} makes no sense: ranks are 0 … size-1",
                options.rank.value, options.size);
  if (options.name.empty() || options.name.size() > max_group_name_bytes)
    return fail(Errc::invalid_argument, "a group's name has 1 … {} bytes", max_group_name_bytes);
  if (options.timeout <= Duration::zero())
    return fail(Errc::invalid_argument, "the time limit for connecting must be more than 0");
  return {};
}

Result<std::unique_ptr<Group>> group_of_one(const GroupOptions& options) {
  return Mesh::create(options, own_identity());
}

// Where rank 0 listens: exactly at the address given. A host name may mean another address
// elsewhere (Debian calls its own name 127.0.1.1), so for a name all of the host's addresses.
Result<std::vector<IpAddress>> meeting_addresses(const std::string& host) {
  BEELINE_TRY(std::vector<IpAddress> addresses, resolve(host));
  if (parse_address(host) || host == "localhost") return addresses;
  BEELINE_TRY(const std::vector<IpAddress> own, own_addresses());
  const auto missing_here = [&](const IpAddress& address) {
    return !address.is_loopback() && std::find(own.begin(), own.end(), address) == own.end();
  };
  if (std::all_of(addresses.begin(), addresses.end(), missing_here))
    return fail(Errc::not_found,
                "the meeting point's host '{}' is {}, which is not this host; rank 0 must run there", host,
                to_string(addresses.front()));
  addresses.erase(std::remove_if(addresses.begin(), addresses.end(), missing_here), addresses.end());
  std::vector<IpAddress> all = own;
  for (const IpAddress& address : addresses)
    if (std::find(all.begin(), all.end(), address) == all.end()) all.push_back(address);
  return all;
}

// In a fresh network namespace the loopback interface is down: one can listen there, but nobody can
// connect, and all would wait out their time.
Result<void> check_loopback(const HostPort& point) {
  const auto is_loopback = [](const IpAddress& address) { return address.is_loopback(); };
  const auto addresses = resolve(point.host);
  if (!addresses || !std::all_of(addresses->begin(), addresses->end(), is_loopback)) return {};
  BEELINE_TRY(const std::vector<IpAddress> own, own_addresses());
  if (std::any_of(own.begin(), own.end(), is_loopback)) return {};
  return fail(Errc::not_found,
              "the meeting point {}:{} lies on this host's loopback interface, which is down; bring it up: "
              "ip link set lo up",
              point.host, point.port);
}

// Where another rank can be reached: by the address that leads to the meeting point. When a host
// name led to loopback, others may know this host by another address.
Result<std::vector<IpAddress>> reachable_addresses(const StoreClient& client, const std::string& host) {
  BEELINE_TRY(const IpAddress address, client.local_address());
  if (address.is_loopback() && host != "localhost" && !parse_address(host)) return own_addresses();
  return std::vector{address};
}

Result<std::unique_ptr<StoreServer>> open_meeting_point(const Greeting& greeting, const HostPort& point,
                                                        const std::vector<IpAddress>& addresses) {
  std::vector<Endpoint> endpoints;
  endpoints.reserve(addresses.size());
  for (const IpAddress& address : addresses) endpoints.push_back({address, point.port});
  return StoreServer::start(greeting, endpoints);
}

Result<std::unique_ptr<Group>> host_meeting(const GroupOptions& options, const Greeting& greeting,
                                            const HostPort& point) {
  BEELINE_TRY(const std::vector<IpAddress> addresses, meeting_addresses(point.host));
  BEELINE_TRY(auto server, open_meeting_point(greeting, point, addresses));
  BEELINE_TRY(auto mesh, connect_all(options, *server, addresses, [&] { return server->trouble(); }));
  // Everybody is connected and nobody may go on yet: when the next group meets here, this store is gone.
  server.reset();
  BEELINE_TRY_VOID(mesh->all_gather({}, options.timeout));
  return mesh;
}

Result<std::unique_ptr<Group>> come_to_meeting(const GroupOptions& options, const Greeting& greeting,
                                               const HostPort& point) {
  const Deadline deadline(options.timeout);
  BEELINE_TRY(auto client, StoreClient::connect(greeting, point, deadline));
  BEELINE_TRY(const std::vector<IpAddress> addresses, reachable_addresses(*client, point.host));
  GroupOptions rest = options;
  rest.timeout = std::max<Duration>(deadline.left(), 1s);
  BEELINE_TRY(auto mesh, connect_all(rest, *client, addresses, {}));
  BEELINE_TRY_VOID(mesh->all_gather({}, options.timeout));
  return mesh;
}

}  // namespace

Result<std::unique_ptr<Group>> Group::meet(const GroupOptions& options, Store& store) {
  BEELINE_TRY_VOID(check(options));
  if (options.size == 1) return group_of_one(options);
  BEELINE_TRY(const std::vector<IpAddress> addresses, own_addresses());
  BEELINE_TRY(auto mesh, connect_all(options, store, addresses, {}));
  return mesh;
}

Result<std::unique_ptr<Group>> Group::meet_at(const GroupOptions& options, const std::string& host_port) {
  BEELINE_TRY_VOID(check(options));
  BEELINE_TRY(const HostPort point, parse_host_port(host_port));
  if (options.size == 1) return group_of_one(options);
  BEELINE_TRY_VOID(check_loopback(point));
  const Identity self = own_identity();
  const Greeting greeting{options.name, options.size, options.rank,
                          fmt::format("pid {} on {}", self.pid, self.host)};
  return options.rank.value == 0 ? host_meeting(options, greeting, point)
                                 : come_to_meeting(options, greeting, point);
}

namespace {

Result<int> whole_number(std::string_view variable, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    return fail(Errc::invalid_argument, "{}={}: give a whole number, {} … {}", variable, text, least, most);
  return value;
}

}  // namespace

Result<Environment> from_torchrun(const std::function<std::optional<std::string>(std::string_view)>& get) {
  std::array<std::string, 4> values;
  constexpr std::array<std::string_view, 4> names{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto value = get(names[i]);
    if (!value || value->empty())
      return fail(Errc::invalid_argument,
                  "{} is not set: start this with torchrun (which sets {}), or give rank, size "
                  "and a meeting point",
                  names[i], fmt::join(names, ", "));
    values[i] = *value;
  }
  Environment out;
  BEELINE_TRY(out.size, whole_number(names[1], values[1], 1, max_group_size));
  BEELINE_TRY(out.rank.value, whole_number(names[0], values[0], 0, out.size - 1));
  const bool store_of_torchrun = get("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  BEELINE_TRY(const int port, whole_number(names[3], values[3], 1, store_of_torchrun ? 65534 : 65535));
  const bool bare_v6 = values[2].find(':') != std::string::npos && values[2].front() != '[';
  out.host_port = fmt::format("{}{}{}:{}", bare_v6 ? "[" : "", values[2], bare_v6 ? "]" : "",
                              port + (store_of_torchrun ? 1 : 0));
  return out;
}

}  // namespace beeline::bootstrap
