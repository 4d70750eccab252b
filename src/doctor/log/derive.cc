#include "doctor/log/derive.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

Event at(Kind kind, const Mark& mark) {
  Event event;
  event.kind = kind;
  event.source = mark.source;
  event.line = mark.line;
  event.order = mark.order;
  event.text = mark.text;
  event.host = printable(mark.host, 120);
  event.section = mark.section;
  event.stamps = mark.stamps;
  return event;
}

Event like(Kind kind, const Event& other) {
  Event event = other;
  event.kind = kind;
  event.code = -1;
  event.detail.clear();
  return event;
}

// The GIDs that an error names.
void from_gids_of_errors(Story& story, std::vector<Event>& found) {
  for (const Event& event : story.events()) {
    if (event.local_gid.empty() && event.remote_gid.empty()) continue;
    const auto local = parse_gid(event.local_gid), remote = parse_gid(event.remote_gid);
    const auto any = [&](auto holds) {
      return (local && std::invoke(holds, *local)) || (remote && std::invoke(holds, *remote));
    };
    if (any(&Gid::is_zero)) {
      found.push_back(like(Kind::gid_zero, event));
      continue;
    }
    if (local && remote && local->is_v4() != remote->is_v4())
      found.push_back(like(Kind::gid_mismatch, event));
    if (any(&Gid::is_link_local) && !story.infiniband_only())
      found.push_back(like(Kind::gid_link_local, event));
  }
}

void from_perftest(Story& story, std::vector<Event>& found) {
  std::set<std::int64_t> mtus;
  for (const Pair& pair : story.blocks().pairs()) {
    if (pair.mtu > 0 && !pair.infiniband) mtus.insert(pair.mtu);
    if (pair.infiniband) continue;
    const auto any = [&](auto holds) {
      return (pair.local && std::invoke(holds, *pair.local)) ||
             (pair.remote && std::invoke(holds, *pair.remote));
    };
    if (any(&Gid::is_zero)) {
      found.push_back(at(Kind::gid_zero, pair.mark));
      continue;
    }
    if (pair.local && pair.remote && pair.local->is_v4() != pair.remote->is_v4())
      found.push_back(at(Kind::gid_mismatch, pair.mark));
    if (any(&Gid::is_link_local)) found.push_back(at(Kind::gid_link_local, pair.mark));
  }
  bool failed = false;
  for (const Event& event : story.events()) failed = failed || is_completion(event.kind);
  if (failed && mtus.size() > 1) {
    Event event = at(Kind::mtu_mismatch, story.blocks().pairs().back().mark);
    event.detail = fmt::format("perftest ran with MTU {} and {}", *mtus.begin(), *mtus.rbegin());
    found.push_back(std::move(event));
  }
}

// On InfiniBand fe80 is what GIDs begin with (the default subnet prefix), and show_gids calls them v1.
bool on_infiniband(const Story& story, const GidRow& row) {
  const auto& ports = story.blocks().ports();
  return std::any_of(ports.begin(), ports.end(), [&](const Port& port) {
    return port.device == row.device && starts(port.link_layer, "InfiniBand") &&
           port.state_mark.source == row.mark.source && port.state_mark.host == row.mark.host;
  });
}

// GID tables: what the configured index means, or whether there is any GID that routes.
void from_gid_tables(Story& story, std::vector<Event>& found) {
  std::map<std::string, std::vector<const GidRow*>> cards;
  for (const GidRow& row : story.blocks().gids())
    if (!on_infiniband(story, row)) cards[fmt::format("{} {}", row.writer, row.device)].push_back(&row);
  const Event* const configured = story.first(Kind::fact_gid_index);
  const std::int64_t index = configured == nullptr ? -1 : number(configured->detail).value_or(-1);
  bool index_anywhere = false;
  for (const GidRow& row : story.blocks().gids()) index_anywhere = index_anywhere || row.index == index;
  for (const auto& [name, rows] : cards) {
    const GidRow* chosen = nullptr;
    bool routable_v2 = false, routable = false;
    for (const GidRow* const row : rows) {
      if (row->index == index) chosen = row;
      const bool routes = !row->gid.is_link_local() && !row->gid.is_zero();
      routable = routable || routes;
      routable_v2 = routable_v2 || (routes && row->v2);
    }
    if (index >= 0) {
      if (chosen == nullptr && !index_anywhere && rows.back()->complete) {
        found.push_back(at(Kind::gid_zero, rows.front()->mark));
        found.back().detail = fmt::format("the table has no entry at index {}", index);
      } else if (chosen != nullptr && chosen->gid.is_link_local()) {
        found.push_back(at(Kind::gid_link_local, chosen->mark));
      } else if (chosen != nullptr && !chosen->v2) {
        found.push_back(at(Kind::gid_v1, chosen->mark));
      }
    } else if (!rows.back()->complete) {
      continue;
    } else if (!routable) {
      found.push_back(at(Kind::gid_link_local, rows.back()->mark));
    } else if (!routable_v2) {
      found.push_back(at(Kind::gid_v1, rows.back()->mark));
    }
    if (!found.empty())
      found.back().device = found.back().device.empty() ? rows.front()->device : found.back().device;
    if (found.size() > 64) return;
  }
}

bool is_up(std::string_view state) { return has(state, "ACTIVE"); }
bool is_down(std::string_view state) {
  return has(state, "DOWN") || has(state, "INIT") || has(state, "ARMED");
}

void from_ports(Story& story, std::vector<Event>& found) {
  const auto& ports = story.blocks().ports();
  const bool some_up =
      std::any_of(ports.begin(), ports.end(), [](const Port& port) { return is_up(port.state); });
  std::set<std::string> named;
  std::map<std::string, const Port*> first_of;
  for (const Port& port : ports) {
    // A disabled port beside working ones is mostly one that nobody uses.
    const bool unused = some_up && has(port.physical, "Disabled");
    if (is_down(port.state) && !unused && named.insert(port.device).second && named.size() <= 16) {
      Event event = at(Kind::port_down, port.state_mark);
      event.device = port.device;
      event.detail = port.state;
      found.push_back(std::move(event));
    }
    if (!is_up(port.state) || port.active_mtu <= 0 || starts(port.link_layer, "InfiniBand")) continue;
    const auto [place, fresh] = first_of.try_emplace(port.device, &port);
    if (fresh || place->second->active_mtu == port.active_mtu || !named.insert("mtu").second) continue;
    Event event = at(Kind::mtu_mismatch, port.mtu_mark);
    event.device = port.device;
    event.detail = fmt::format("{} has active MTU {} here and {} in line {}", port.device, port.active_mtu,
                               place->second->active_mtu, place->second->mtu_mark.line);
    found.push_back(std::move(event));
  }
}

void from_counters(Story& story, std::vector<Event>& found) {
  std::int64_t lost = 0, paused = 0, corrupt = 0, pause_counters = 0;
  const Mark* loss_mark = nullptr;
  const Mark* link_mark = nullptr;
  std::string names, link_names;
  for (const auto& [name, counter] : story.blocks().counters()) {
    if (counter.readings < 2) continue;
    const std::int64_t delta = counter.last - counter.first;
    const std::string short_name = name.substr(name.rfind(' ') + 1);
    switch (kind_of_counter(short_name)) {
      case CounterKind::loss:
        if (delta <= 0) break;
        if (loss_mark == nullptr) loss_mark = &counter.mark;
        if (names.size() < 200)
          names += fmt::format("{}{} +{}", names.empty() ? "" : ", ", short_name, delta);
        lost += delta;
        break;
      case CounterKind::pause:
        ++pause_counters;
        paused += std::max<std::int64_t>(delta, 0);
        break;
      case CounterKind::link:
        if (delta <= 0) break;
        if (link_mark == nullptr) link_mark = &counter.mark;
        if (link_names.size() < 200)
          link_names += fmt::format("{}{} +{}", link_names.empty() ? "" : ", ", short_name, delta);
        corrupt += delta;
        break;
      case CounterKind::none:
        break;
    }
  }
  if (lost > 0) {
    found.push_back(
        at(pause_counters > 0 && paused == 0 ? Kind::loss_without_pfc : Kind::packet_loss, *loss_mark));
    found.back().detail = names;
  }
  if (corrupt > 0) {
    found.push_back(at(Kind::link_errors, *link_mark));
    found.back().detail = link_names;
  }
}

// Whether NCCL itself ran on several hosts; logs may hold other jobs' lines too.
bool spans_hosts(const Story& story) { return story.nccl_hosts().size() > 1; }

// Whether NCCL was to leave `host`, which is on sockets: where a log holds other jobs' lines too, only what
// those on sockets say counts. One host needs no network.
bool leaves(const Story& story, const std::string& host) {
  std::set<std::string> on_sockets;
  for (const Kind kind : {Kind::fact_socket_network, Kind::fact_no_device})
    for (const Event* const event : story.all(kind)) on_sockets.insert(event->host);
  const auto wants = [&](Kind kind) {
    const auto all = story.all(kind);
    return std::any_of(all.begin(), all.end(), [&](const Event* event) { return event->host == host; });
  };
  return on_sockets.size() > 1 || story.world_of(host) > static_cast<std::int64_t>(story.nccl_ranks()) ||
         wants(Kind::fact_wants_rdma) || wants(Kind::fact_gid_index);
}

void from_paths(Story& story, std::vector<Event>& found) {
  const Event* const socket = story.first(Kind::fact_channel_socket);
  const Event* const network = story.first(Kind::fact_socket_network);
  if (socket != nullptr) {
    found.push_back(like(Kind::socket_fallback, *socket));
  } else if (network != nullptr && leaves(story, network->host)) {
    found.push_back(like(Kind::socket_fallback, *network));
  }
  // NCCL before 2.12 sends from GPU memory only where reading is fast; receiving is what counts.
  const auto plain = story.all(Kind::fact_channel_ib);
  const auto direct = story.all(Kind::fact_channel_ib_gdr);
  for (const Event* const event : plain) {
    const bool other_direction_direct = std::any_of(direct.begin(), direct.end(), [&](const Event* other) {
      return event->detail == "send" && other->detail == "receive" && other->host == event->host;
    });
    if (other_direction_direct) continue;
    found.push_back(like(Kind::no_gpudirect, *event));
    break;
  }
  const Event* const disabled = story.first(Kind::fact_gdr_disabled);
  if (plain.empty() && direct.empty() && disabled != nullptr &&
      story.first(Kind::fact_gdr_enabled) == nullptr)
    found.push_back(like(Kind::no_gpudirect, *disabled));
}

void from_environment(Story& story, std::vector<Event>& found) {
  for (const Event* const event : story.all(Kind::fact_bootstrap))
    if (event->code == 1 && spans_hosts(story)) {
      found.push_back(like(Kind::wrong_interface, *event));
      found.back().detail = event->detail;
      break;
    }
  const Event* const old = story.first(Kind::fact_plugin_old);
  if (old != nullptr && story.first(Kind::fact_plugin_loaded) == nullptr)
    found.push_back(like(Kind::plugin_mismatch, *old));
  const auto differs = [&](Kind fact, Kind kind) {
    const Event* one = nullptr;
    for (const Event* const event : story.all(fact)) {
      if (event->host.empty() && event->rank.empty()) continue;
      if (one == nullptr) one = event;
      if (event->detail == one->detail || (event->host == one->host && event->rank == one->rank)) continue;
      found.push_back(like(kind, *event));
      found.back().detail =
          fmt::format("{} on {}, {} on {}", one->detail,
                      one->host.empty() ? fmt::format("rank {}", one->rank) : one->host, event->detail,
                      event->host.empty() ? fmt::format("rank {}", event->rank) : event->host);
      return;
    }
  };
  differs(Kind::fact_traffic_class, Kind::traffic_class);
  if (story.first(Kind::version_mismatch) == nullptr) differs(Kind::fact_version, Kind::version_mismatch);
}

}  // namespace

void derive(Story& story) {
  std::vector<Event> found;
  from_gids_of_errors(story, found);
  from_perftest(story, found);
  from_gid_tables(story, found);
  from_ports(story, found);
  from_counters(story, found);
  from_paths(story, found);
  from_environment(story, found);
  for (Event& event : found) story.add_settled(std::move(event));
}

}  // namespace beeline::doctor::log
