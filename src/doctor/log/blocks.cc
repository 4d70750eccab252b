#include "doctor/log/blocks.h"

#include <algorithm>
#include <cctype>

#include "doctor/log/recognise.h"
#include "doctor/log/text.h"

namespace beeline::doctor::log {
namespace {

// Of hosts with many cards and of hostile input.
constexpr std::size_t most_writers = 4096, most_rows = 16384, most_counters = 16384;

struct CounterName {
  std::string_view part;
  CounterKind kind;
};
constexpr CounterName counter_names[] = {
    {"rx_discards_phy", CounterKind::loss},
    {"rx_out_of_buffer", CounterKind::loss},
    {"out_of_buffer", CounterKind::loss},
    {"out_of_sequence", CounterKind::loss},
    {"packet_seq_err", CounterKind::loss},
    {"local_ack_timeout_err", CounterKind::loss},
    {"implied_nak_seq_err", CounterKind::loss},
    {"rx_prio*_discards", CounterKind::loss},
    {"roce_adp_retrans", CounterKind::loss},
    {"rx_roce_discards", CounterKind::loss},
    {"pause", CounterKind::pause},
    {"rx_crc_errors_phy", CounterKind::link},
    {"rx_symbol_err_phy", CounterKind::link},
    {"symbol_error", CounterKind::link},
    {"link_down_events_phy", CounterKind::link},
    {"link_error_recovery", CounterKind::link},
    {"rx_fcs_err", CounterKind::link},
};

bool is_counter_name(std::string_view name) {
  if (name.size() < 4 || name.size() > 48) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '.'; });
}

}  // namespace

CounterKind kind_of_counter(std::string_view name) {
  if (starts(name, "rx_prio") && has(name, "discard")) return CounterKind::loss;
  for (const CounterName& row : counter_names)
    if (row.kind == CounterKind::pause ? has(name, row.part) && !has(name, "storm")
                                       : equal_ignoring_case(name, row.part))
      return row.kind;
  return CounterKind::none;
}

Blocks::Writer& Blocks::writer_of(std::uint64_t stream) {
  if (writers_.size() >= most_writers && writers_.find(stream) == writers_.end()) writers_.clear();
  return writers_[stream];
}

void Blocks::start_port(std::string_view device, std::uint64_t stream, Writer& writer, bool fresh) {
  if (fresh) writer.device = device;
  if (ports_.size() >= most_rows) return;
  writer.port = ports_.size();
  Port port;
  port.device = writer.device;
  port.writer = stream;
  ports_.push_back(std::move(port));
}

void Blocks::count(const std::string& device, std::string_view name, std::int64_t value, const Mark& mark) {
  if (kind_of_counter(name) == CounterKind::none || counters_.size() >= most_counters) return;
  Counter& counter = counters_[mark.set + device + " " + std::string(name)];
  if (counter.readings == 0 || value < counter.first) counter.first = value;  // a counter that was reset
  counter.last = value;
  counter.mark = mark;
  ++counter.readings;
}

void Blocks::read(const Line& line, const Mark& mark, const Emit& emit) {
  const std::string_view body = trimmed(line.body);
  if (body.empty()) return;
  Writer& writer = writer_of(line.stream ^ (std::uint64_t{mark.source} << 48));
  // "$ ethtool -S ens1", an echoed command.
  if (const auto at = find(body, "ethtool -S "); at != body.npos && body.size() - at < 200)
    writer.netdev = word(body.substr(at + 11));
  if (const auto device = after(body, "CA '"); device && starts(body, "CA '")) {
    ++instance_;
    start_port(word(*device), instance_, writer, true);
    return;
  }
  const bool rdma_tool = body.substr(0, 5) == "link ";
  if (rdma_tool && has(body, " state ")) return read_rdma_link(line, mark);
  if (rdma_tool && body.size() < 4000) return read_statistic(body, mark);
  if (body.front() == '/' && has(body, "counters/")) return read_path_counter(body, mark);
  if (is_digit(body.front()) || body.front() == '#') return read_row(line, mark, emit);
  end_gid_rows(body);
  if (has(body.substr(0, 80), ":0000:") || has(body.substr(0, 80), "fe80:")) read_gid_row(line, mark);
  read_field(line, writer, mark, emit);
}

void Blocks::read_field(const Line& line, Writer& writer, const Mark& mark, const Emit& emit) {
  const std::string_view body = trimmed(line.body);
  const auto colon = body.find(':');
  if (colon > 48) return;  // or there is none
  const std::string_view key = trimmed(body.substr(0, colon));
  const std::string_view value = trimmed(body.substr(colon + 1));
  if (key == "hca_id") {
    ++instance_;
    return start_port(word(value), instance_, writer, true);
  }
  read_device_field(key, value, writer, mark);
  read_perftest(key, value, writer, mark);
  read_summary(key, value, writer, mark, emit);
  if (!is_counter_name(key) || kind_of_counter(key) == CounterKind::none) return;
  const auto first = number(value);
  if (!first || *first < 0) return;
  const std::string device = line.host.empty() ? writer.netdev : std::string(line.host) + "/" + writer.netdev;
  count(device, key, *first, mark);
  if (const auto second = number_after(value, "->")) count(device, key, *second, mark);
}

void Blocks::read_device_field(std::string_view key, std::string_view value, Writer& writer,
                               const Mark& mark) {
  if (writer.port == SIZE_MAX) return;
  Port* port = &ports_[writer.port];
  const bool next_port = (key == "port" || (starts(key, "Port ") && value.empty()));
  if (next_port && !port->state.empty()) {
    start_port({}, port->writer, writer, false);
    return;
  }
  if (equal_ignoring_case(key, "state") && port->state.empty()) {
    port->state = word(value);
    port->state_mark = mark;
  } else if (equal_ignoring_case(key, "physical state") || key == "phys_state") {
    port->physical = word(value);
  } else if (key == "active_mtu") {
    port->active_mtu = number(value).value_or(-1);
    port->mtu_mark = mark;
  } else if (equal_ignoring_case(key, "link layer") || key == "link_layer") {
    port->link_layer = word(value);
  }
}

void Blocks::read_perftest(std::string_view key, std::string_view value, Writer& writer, const Mark& mark) {
  const auto pair = [&]() -> Pair* {
    if (writer.pair == SIZE_MAX) {
      if (pairs_.size() >= most_rows) return nullptr;
      writer.pair = pairs_.size();
      pairs_.emplace_back();
    }
    return &pairs_[writer.pair];
  };
  if (key == "Dual-port") {
    writer.pair = SIZE_MAX;
  } else if (key == "Mtu" && has(value, "[B]")) {
    if (Pair* const mine = pair()) mine->mtu = number(value).value_or(-1), mine->mark = mark;
  } else if (key == "Link type") {
    if (Pair* const mine = pair()) mine->infiniband = starts(value, "IB");
  } else if (key == "local address" || key == "remote address") {
    writer.remote = key == "remote address";
    // The examples of libibverbs print the GID behind it, in hexadecimal.
    const std::string_view words = word_after(value, " GID ");
    if (const auto gid = parse_gid(words); gid && !has(value, "LID 0x0001")) {
      if (Pair* const mine = pair()) (writer.remote ? mine->remote : mine->local) = gid, mine->mark = mark;
    }
  } else if (key == "GID" && writer.pair != SIZE_MAX) {
    const auto gid = parse_decimal_gid(value);
    Pair& mine = pairs_[writer.pair];
    if (!gid) return;
    (writer.remote ? mine.remote : mine.local) = gid;
    mine.mark = mark;
  }
}

// torchrun: "Root Cause (first observed failure):", then "  rank      : 3 (local_rank: 3)" and others.
void Blocks::read_summary(std::string_view key, std::string_view value, Writer& writer, const Mark& mark,
                          const Emit& emit) {
  if (starts(key, "Root Cause")) {
    writer.root_cause = true;
    writer.rank.clear();
    writer.host.clear();
  } else if (!writer.root_cause) {
    return;
  } else if (key == "host") {
    writer.host = word(value);
  } else if (key == "rank") {
    if (const auto rank = number(value)) writer.rank = std::to_string(*rank);
  } else if (key == "exitcode") {
    const auto code = number(value);
    writer.root_cause = false;
    if (!code) return;
    Event event;
    event.code = *code;
    event.rank = writer.rank;
    event.host = writer.host;
    if (const auto pid = number_after(value, "(pid: ")) event.pid = std::to_string(*pid);
    event.detail = "root cause";
    event.kind = *code == -9                                  ? Kind::process_killed
                 : *code == -11 || *code == -7 || *code == -8 ? Kind::process_crashed
                 : *code == -15                               ? Kind::fact_exit
                                                              : Kind::process_failed;
    (void)mark;
    emit(std::move(event));
  }
}

// A line that cannot be another row of the same device, not even a row that was cut off.
void Blocks::end_gid_rows(std::string_view body) {
  if (open_gids_ == gids_.size()) return;
  const std::string& device = gids_.back().device;
  const std::size_t alike = std::min(device.size(), body.size());
  if (device.substr(0, alike) == body.substr(0, alike)) return;
  for (; open_gids_ < gids_.size(); ++open_gids_) gids_[open_gids_].complete = true;
}

// "mlx5_0  1  3  0000:…:ffff:0a98:000c  10.152.0.12  v2  net1"; without an address the fifth is missing.
void Blocks::read_gid_row(const Line& line, const Mark& mark) {
  std::string_view rest = line.body;
  GidRow row;
  row.device = take_word(rest);
  const auto port = number(take_word(rest));
  const auto index = number(take_word(rest));
  const auto gid = parse_gid(take_word(rest));
  if (!port || !index || !gid || gids_.size() >= most_rows) return;
  std::string_view type = take_word(rest);
  if (type.find('.') != type.npos || (type.find(':') != type.npos)) type = take_word(rest);
  if (type != "v1" && type != "v2") return;
  const std::string_view netdev = take_word(rest);
  if (starts(netdev, "ib")) return;  // InfiniBand, where fe80 is normal
  row.v2 = type == "v2";
  row.index = *index;
  row.gid = *gid;
  // A table starts again where the index falls on the same device.
  if (!gids_.empty() && gids_.back().device == row.device && gids_.back().index >= row.index) ++instance_;
  row.writer = line.stream ^ (std::uint64_t{mark.source} << 48);
  row.mark = mark;
  gids_.push_back(std::move(row));
}

void Blocks::read_rdma_link(const Line& line, const Mark& mark) {
  std::string_view rest = trimmed(line.body).substr(5);
  if (ports_.size() >= most_rows) return;
  Port port;
  port.device = take_word(rest);
  port.writer = ++instance_;
  port.state = word_after(rest, "state ");
  port.physical = word_after(rest, "physical_state ");
  port.link_layer = has(rest, "netdev ib") ? "InfiniBand" : "";
  port.state_mark = mark;
  if (port.device.find('/') != std::string::npos) ports_.push_back(std::move(port));
}

// rdma statistic: "link mlx5_0/1 rx_write_requests 0 … out_of_sequence 12 …".
void Blocks::read_statistic(std::string_view body, const Mark& mark) {
  body.remove_prefix(5);
  const std::string device = std::string(take_word(body));
  if (device.find('/') == std::string::npos) return;
  while (!body.empty()) {
    const std::string_view name = take_word(body);
    std::string_view ahead = body;
    const auto value = number(take_word(ahead));
    if (name.empty()) return;
    if (value) body = ahead, count(device, name, *value, mark);
  }
}

// "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence:123".
void Blocks::read_path_counter(std::string_view body, const Mark& mark) {
  const auto colon = body.rfind(':');
  const auto slash = body.rfind('/');
  if (colon == body.npos || slash == body.npos || slash > colon) return;
  const auto value = number(body.substr(colon + 1));
  const auto device = after(body, "infiniband/");
  if (value && device)
    count(std::string(device->substr(0, device->find('/'))), body.substr(slash + 1, colon - slash - 1),
          *value, mark);
}

// A row of nccl-tests, perftest or the OSU benchmarks: numbers under numbers.
void Blocks::read_row(const Line& line, const Mark& mark, const Emit& emit) {
  std::string_view rest = trimmed(line.body);
  int numbers = 0, words = 0, fractions = 0;
  while (!rest.empty() && words < 16) {
    const std::string_view item = take_word(rest);
    const bool numeric = !item.empty() && std::all_of(item.begin(), item.end(), [](char c) {
      return is_digit(c) || c == '.' || c == '-';
    });
    numbers += numeric ? 1 : 0;
    fractions += numeric && item.find('.') != item.npos ? 1 : 0;
    ++words;
  }
  if (numbers < 4 || fractions < 2 || words - numbers > 3) return;
  (void)mark;
  Event event;
  event.kind = Kind::fact_traffic;
  emit(std::move(event));
}

}  // namespace beeline::doctor::log
