#include "base/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

namespace beeline {
namespace {

Result<Config> parse(const std::map<std::string, std::string, std::less<>>& variables) {
  return parse_config([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(Config, DefaultsStandWithoutVariables) {
  const auto config = parse({});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->lane, Lane::automatic);
  EXPECT_EQ(config->operation_timeout, 30min);
  EXPECT_FALSE(config->gid_index);
}

TEST(Config, EveryVariableOfTheTableIsRead) {
  const auto config = parse({{"BEELINE_LANE", "local"},
                             {"BEELINE_PROVIDER", "soft"},
                             {"BEELINE_ICRC", "strict"},
                             {"BEELINE_GSO", "off"},
                             {"BEELINE_DEVICE", "bee1"},
                             {"BEELINE_GID_INDEX", "3"},
                             {"BEELINE_LOG", "debug"},
                             {"BEELINE_INFLIGHT_BYTES", "64K"},
                             {"BEELINE_COUNTERS", "/tmp/counters"},
                             {"BEELINE_TIMEOUT", "2.5"},
                             {"BEELINE_WARN_AFTER", "1"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->lane, Lane::local);
  EXPECT_EQ(config->provider, Provider::soft);
  EXPECT_EQ(config->icrc, IcrcCheck::strict);
  EXPECT_EQ(config->segmentation, Segmentation::off);
  EXPECT_EQ(config->device, "bee1");
  EXPECT_EQ(config->gid_index, 3);
  EXPECT_EQ(config->log_level, "debug");
  EXPECT_EQ(config->inflight_bytes, 65536u);
  EXPECT_EQ(config->counters_file, "/tmp/counters");
  EXPECT_EQ(config->operation_timeout, 2500ms);
  EXPECT_EQ(config->warn_after, 1s);
  EXPECT_EQ(config_variables().size(), 11u) << "a variable was added: read it here too";
}

TEST(Config, AnEmptyVariableCountsAsUnset) {
  const auto config = parse({{"BEELINE_LANE", ""}});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->lane, Lane::automatic);
}

TEST(Config, ABadValueIsNamedWithItsVariable) {
  const std::pair<std::string, std::string> bad[] = {
      {"BEELINE_LANE", "shm"},        {"BEELINE_PROVIDER", "mlx5"}, {"BEELINE_GID_INDEX", "-1"},
      {"BEELINE_GID_INDEX", "256"},   {"BEELINE_LOG", "loud"},      {"BEELINE_INFLIGHT_BYTES", "1X"},
      {"BEELINE_TIMEOUT", "0"},       {"BEELINE_TIMEOUT", "nan"},   {"BEELINE_TIMEOUT", "1e30"},
      {"BEELINE_WARN_AFTER", "soon"}, {"BEELINE_ICRC", "lax"},      {"BEELINE_GSO", "1"},
  };
  for (const auto& [name, value] : bad) {
    const auto config = parse({{name, value}});
    ASSERT_FALSE(config) << name << "=" << value;
    EXPECT_EQ(config.error().code, Errc::invalid_argument);
    EXPECT_THAT(config.error().message, ::testing::StartsWith(fmt::format("{}={}", name, value)));
  }
}

}  // namespace
}  // namespace beeline
