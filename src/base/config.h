// The one typed configuration object. Only the composition roots (api/, cli/,
// preload/, tests) build it from the environment; everybody else is handed it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace beeline {

enum class Lane : std::uint8_t { automatic, wire, local };
enum class Provider : std::uint8_t { automatic, soft, system };
enum class IcrcCheck : std::uint8_t { automatic, plain, strict };
enum class Segmentation : std::uint8_t { automatic, on, off };

struct Config {
  // BEELINE_LANE=auto|wire|local: how RC traffic between processes of one host and user goes. wire: as
  // packets too. local: through shared memory, and nothing else will do. auto: through shared memory if both
  // ends can.
  Lane lane = Lane::automatic;
  // BEELINE_PROVIDER=auto|soft|system
  Provider provider = Provider::automatic;
  // BEELINE_ICRC=auto|plain|strict: strict sees received IPv4 headers (a raw socket: CAP_NET_RAW) and checks
  // every ICRC exactly; plain accepts any IP identification that explains it; auto: strict if we may.
  IcrcCheck icrc = IcrcCheck::automatic;
  // BEELINE_GSO=auto|on|off: whether runs of packets of a flow leave as one piece that the kernel, or the
  // device, cuts (UDP_SEGMENT); auto: where the cut packets are known to be numbered as their ICRC says.
  Segmentation segmentation = Segmentation::automatic;
  // BEELINE_DEVICE=bee1: the device where a call or command names none; empty: the first usable one.
  std::string device;
  // BEELINE_GID_INDEX: GID index on that device; unset: ranked choice.
  std::optional<int> gid_index;
  // BEELINE_LOG=trace|debug|info|warning|error|off
  std::string log_level = "warning";
  // BEELINE_INFLIGHT_BYTES: unacknowledged payload allowed per process; 0: from the receive buffer.
  std::size_t inflight_bytes = 0;
  // BEELINE_COUNTERS: file that a process appends to, at its end, what its card moved, as a line of JSON;
  // empty: none.
  std::string counters_file;
  // BEELINE_TIMEOUT: seconds that a collective may take before it fails.
  Duration operation_timeout = 30min;
  // BEELINE_WARN_AFTER: seconds until a late peer is named in a warning.
  Duration warn_after = 30s;
};

// One row of the table that parser, help text and documentation share.
struct ConfigVariable {
  std::string_view name;
  std::string_view values;
  std::string_view meaning;
};
const std::vector<ConfigVariable>& config_variables();

// `get` returns the value of a variable, or nothing. A bad value is an error that
// names the variable, the value and what is allowed.
using GetVariable = std::function<std::optional<std::string>(std::string_view)>;
Result<Config> parse_config(const GetVariable& get);

// Reads the process environment. For composition roots only.
Result<Config> config_from_environment();

}  // namespace beeline
