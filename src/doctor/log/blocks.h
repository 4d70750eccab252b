// What tools print over several lines: ports, GID tables, counters, perftest's two ends, the
// summary of torchrun. Each writer of a mixed log has its own half-read block.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "doctor/log/event.h"
#include "doctor/log/gid.h"

namespace beeline::doctor::log {

// Where something was read.
struct Mark {
  std::uint32_t source = 0;
  std::uint64_t line = 0, order = 0;
  std::string text, host;
  std::string section;  // the heading above, where the line names nobody
  std::string set;      // counters of different sets are not compared
  Stamps stamps;
};

struct Port {
  std::string device;
  std::uint64_t writer = 0;
  std::string state, physical, link_layer;
  std::int64_t active_mtu = -1;
  Mark state_mark, mtu_mark;
};

struct GidRow {
  std::string device;
  std::uint64_t writer = 0;
  std::int64_t index = -1;
  Gid gid{};
  bool v2 = false;
  bool complete = false;  // the rows of this device ended, so what is missing is not there
  Mark mark;
};

// A counter that was read more than once.
struct Counter {
  std::int64_t first = 0, last = 0;
  std::uint64_t readings = 0;
  Mark mark;
};

// perftest's two ends, as one of them prints them.
struct Pair {
  std::optional<Gid> local, remote;
  std::int64_t mtu = -1;
  bool infiniband = false;
  Mark mark;
};

class Blocks {
 public:
  using Emit = std::function<void(Event&&)>;

  // `emit` gets what a block says as soon as it is complete.
  void read(const Line& line, const Mark& mark, const Emit& emit);

  const std::vector<Port>& ports() const { return ports_; }
  const std::vector<GidRow>& gids() const { return gids_; }
  const std::vector<Pair>& pairs() const { return pairs_; }
  // Keyed by "device counter".
  const std::map<std::string, Counter>& counters() const { return counters_; }

 private:
  struct Writer {
    std::size_t port = SIZE_MAX, pair = SIZE_MAX;
    std::string device;       // of the block
    std::string netdev;       // of the last ethtool
    std::string rank, host;   // of torchrun's summary
    bool remote = false;      // perftest: the next GID is the other end's
    bool root_cause = false;  // inside torchrun's summary
  };

  Writer& writer_of(std::uint64_t stream);
  void read_field(const Line& line, Writer& writer, const Mark& mark, const Emit& emit);
  void read_device_field(std::string_view key, std::string_view value, Writer& writer, const Mark& mark);
  void read_perftest(std::string_view key, std::string_view value, Writer& writer, const Mark& mark);
  void read_summary(std::string_view key, std::string_view value, Writer& writer, const Mark& mark,
                    const Emit& emit);
  void end_gid_rows(std::string_view body);
  void read_gid_row(const Line& line, const Mark& mark);
  void read_rdma_link(const Line& line, const Mark& mark);
  void read_statistic(std::string_view body, const Mark& mark);
  void read_path_counter(std::string_view body, const Mark& mark);
  void read_row(const Line& line, const Mark& mark, const Emit& emit);
  void count(const std::string& device, std::string_view name, std::int64_t value, const Mark& mark);
  void start_port(std::string_view device, std::uint64_t stream, Writer& writer, bool fresh);

  std::unordered_map<std::uint64_t, Writer> writers_;
  std::vector<Port> ports_;
  std::vector<GidRow> gids_;
  std::vector<Pair> pairs_;
  std::map<std::string, Counter> counters_;
  std::uint64_t instance_ = 0;
  std::size_t open_gids_ = 0;  // rows before this one are complete
};

// Whether a counter of this name tells of losses, pauses or bad links; others are not kept.
enum class CounterKind : std::uint8_t { none, loss, pause, link };
CounterKind kind_of_counter(std::string_view name);

}  // namespace beeline::doctor::log
