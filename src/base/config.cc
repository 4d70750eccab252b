#include "base/config.h"

#include <charconv>
#include <cstdlib>

#include "base/byte_count.h"

namespace beeline {
namespace {

Result<std::uint64_t> parse_number(std::string_view name, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    return fail(Errc::invalid_argument, "{}={}: not a whole number", name, text);
  return value;
}

Result<Duration> parse_seconds(std::string_view name, const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  // A year bounds what a Duration must hold; NaN fails both comparisons.
  if (end == text.c_str() || *end != '\0' || !(seconds > 0 && seconds <= 366.0 * 86400))
    return fail(Errc::invalid_argument, "{}={}: give seconds, more than 0 and at most a year", name, text);
  return Duration{static_cast<std::int64_t>(seconds * 1e9)};
}

Result<void> set_lane(Config& config, std::string_view name, const std::string& text) {
  if (text == "auto")
    config.lane = Lane::automatic;
  else if (text == "wire")
    config.lane = Lane::wire;
  else if (text == "local")
    config.lane = Lane::local;
  else
    return fail(Errc::invalid_argument, "{}={}: give auto, wire or local", name, text);
  return {};
}

Result<void> set_provider(Config& config, std::string_view name, const std::string& text) {
  if (text == "auto")
    config.provider = Provider::automatic;
  else if (text == "soft")
    config.provider = Provider::soft;
  else if (text == "system")
    config.provider = Provider::system;
  else
    return fail(Errc::invalid_argument, "{}={}: give auto, soft or system", name, text);
  return {};
}

Result<void> set_icrc(Config& config, std::string_view name, const std::string& text) {
  if (text == "auto")
    config.icrc = IcrcCheck::automatic;
  else if (text == "plain")
    config.icrc = IcrcCheck::plain;
  else if (text == "strict")
    config.icrc = IcrcCheck::strict;
  else
    return fail(Errc::invalid_argument, "{}={}: give auto, plain or strict", name, text);
  return {};
}

Result<void> set_segmentation(Config& config, std::string_view name, const std::string& text) {
  if (text == "auto")
    config.segmentation = Segmentation::automatic;
  else if (text == "on")
    config.segmentation = Segmentation::on;
  else if (text == "off")
    config.segmentation = Segmentation::off;
  else
    return fail(Errc::invalid_argument, "{}={}: give auto, on or off", name, text);
  return {};
}

Result<void> set_device(Config& config, std::string_view, const std::string& text) {
  config.device = text;
  return {};
}

Result<void> set_gid_index(Config& config, std::string_view name, const std::string& text) {
  BEELINE_TRY(const auto index, parse_number(name, text));
  if (index > 255) return fail(Errc::invalid_argument, "{}={}: a GID index is 0 … 255", name, text);
  config.gid_index = static_cast<int>(index);
  return {};
}

Result<void> set_log(Config& config, std::string_view name, const std::string& text) {
  for (const std::string_view level : {"trace", "debug", "info", "warning", "error", "off"})
    if (text == level) {
      config.log_level = text;
      return {};
    }
  return fail(Errc::invalid_argument, "{}={}: give trace, debug, info, warning, error or off", name, text);
}

Result<void> set_inflight(Config& config, std::string_view name, const std::string& text) {
  const auto bytes = parse_byte_count(text);
  if (!bytes)
    return fail(Errc::invalid_argument, "{}={}: give a number of bytes, or one with K, M or G behind it",
                name, text);
  config.inflight_bytes = *bytes;
  return {};
}

Result<void> set_counters(Config& config, std::string_view, const std::string& text) {
  config.counters_file = text;
  return {};
}

Result<void> set_timeout(Config& config, std::string_view name, const std::string& text) {
  BEELINE_TRY(config.operation_timeout, parse_seconds(name, text));
  return {};
}

Result<void> set_warn_after(Config& config, std::string_view name, const std::string& text) {
  BEELINE_TRY(config.warn_after, parse_seconds(name, text));
  return {};
}

struct Row {
  ConfigVariable variable;
  Result<void> (*set)(Config&, std::string_view, const std::string&);
};

constexpr Row rows[] = {
    {{"BEELINE_LANE", "auto, wire, local",
      "wire: also processes of one host exchange packets; local: none do"},
     set_lane},
    {{"BEELINE_PROVIDER", "auto, soft, system", "where verbs come from"}, set_provider},
    {{"BEELINE_ICRC", "auto, plain, strict", "strict: check received packets against their IP header too"},
     set_icrc},
    {{"BEELINE_GSO", "auto, on, off", "whether runs of packets leave in one piece (UDP_SEGMENT)"},
     set_segmentation},
    {{"BEELINE_DEVICE", "a device name", "device where none is named"}, set_device},
    {{"BEELINE_GID_INDEX", "0 … 255", "GID index on that device"}, set_gid_index},
    {{"BEELINE_LOG", "trace … off", "what goes to standard error"}, set_log},
    {{"BEELINE_INFLIGHT_BYTES", "bytes, also 64K, 1M", "unacknowledged payload per process"}, set_inflight},
    {{"BEELINE_COUNTERS", "a file", "what each process's card moved is appended at its end, as JSON"},
     set_counters},
    {{"BEELINE_TIMEOUT", "seconds", "how long a collective may take"}, set_timeout},
    {{"BEELINE_WARN_AFTER", "seconds", "when a late peer is named in a warning"}, set_warn_after},
};

}  // namespace

const std::vector<ConfigVariable>& config_variables() {
  static const std::vector<ConfigVariable> table = [] {
    std::vector<ConfigVariable> variables;
    for (const Row& row : rows) variables.push_back(row.variable);
    return variables;
  }();
  return table;
}

Result<Config> parse_config(const GetVariable& get) {
  Config config;
  for (const Row& row : rows) {
    const auto text = get(row.variable.name);
    if (text && !text->empty()) BEELINE_TRY_VOID(row.set(config, row.variable.name, *text));
  }
  return config;
}

Result<Config> config_from_environment() {
  return parse_config([](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace beeline
