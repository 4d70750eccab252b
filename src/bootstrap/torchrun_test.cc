#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

#include "bootstrap/group.h"
#include "bootstrap/socket.h"

namespace beeline::bootstrap {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string, std::less<>>;

Result<Environment> read(const Variables& variables) {
  return from_torchrun([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

const Variables good{{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node-a"}, {"MASTER_PORT", "29500"}};

TEST(Torchrun, GivesRankSizeAndPlace) {
  const auto environment = read(good);
  ASSERT_TRUE(environment.has_value());
  EXPECT_EQ(environment->rank, Rank{3});
  EXPECT_EQ(environment->size, 8);
  EXPECT_EQ(environment->host_port, "node-a:29500");
}

TEST(Torchrun, KeepsClearOfTorchrunsOwnStore) {
  auto variables = good;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(read(variables)->host_port, "node-a:29501");
  variables["MASTER_PORT"] = "65535";
  EXPECT_EQ(read(variables).error().code, Errc::invalid_argument);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(read(variables)->host_port, "node-a:65535");
}

TEST(Torchrun, PutsAnIpV6AddressInBrackets) {
  auto variables = good;
  variables["MASTER_ADDR"] = "fd00::1";
  EXPECT_EQ(read(variables)->host_port, "[fd00::1]:29500");
}

TEST(Torchrun, NamesTheMissingVariable) {
  for (const auto& [name, value] : good) {
    auto variables = good;
    variables.erase(name);
    const auto environment = read(variables);
    ASSERT_FALSE(environment.has_value());
    EXPECT_EQ(environment.error().code, Errc::invalid_argument);
    EXPECT_THAT(environment.error().message, HasSubstr(name + " is not set"));
  }
}

TEST(Torchrun, NamesTheBadVariable) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"RANK", "8"},       {"RANK", "-1"},       {"RANK", "x"},
      {"WORLD_SIZE", "0"}, {"MASTER_PORT", "0"}, {"MASTER_PORT", "70000"}};
  for (const auto& [name, value] : bad) {
    auto variables = good;
    variables[name] = value;
    const auto environment = read(variables);
    ASSERT_FALSE(environment.has_value()) << name << "=" << value;
    EXPECT_THAT(environment.error().message, HasSubstr(fmt::format("{}={}", name, value)));
  }
}

TEST(HostPort, IsReadAsPeopleWriteIt) {
  EXPECT_EQ(parse_host_port("node-a:29500")->host, "node-a");
  EXPECT_EQ(parse_host_port("[::1]:80")->host, "::1");
  EXPECT_EQ(parse_host_port("[::1]:80")->port, 80);
}

}  // namespace
}  // namespace beeline::bootstrap
