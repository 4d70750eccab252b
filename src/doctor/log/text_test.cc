#include "doctor/log/text.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "doctor/log/anchors.h"
#include "doctor/log/gid.h"
#include "doctor/log/lines.h"

namespace beeline::doctor::log {
namespace {

using Numbered = std::vector<std::pair<std::string, std::uint64_t>>;

Numbered lines_of(std::string_view text) {
  Lines lines;
  Numbered found;
  const auto take = [&](std::string_view line, std::uint64_t number) { found.emplace_back(line, number); };
  lines.add(text, take);
  lines.end(take);
  return found;
}

TEST(Lines, KeepTheirNumbers) {
  EXPECT_EQ(lines_of("a\n\nb\r\nc"), (Numbered{{"a", 1}, {"b", 3}, {"c", 4}}));
  EXPECT_EQ(lines_of("10%\r20%\rdone\nnext\n"), (Numbered{{"10%", 1}, {"20%", 1}, {"done", 1}, {"next", 2}}));
}

TEST(Lines, LoseColoursAndNulBytes) {
  using namespace std::string_view_literals;
  EXPECT_EQ(lines_of("\x1b[1;31mred\x1b[0m\0\0 x\x1b]0;title\a!\n"sv), (Numbered{{"red x!", 1}}));
}

TEST(Lines, AHalfNumberAtTheEndIsLeftOut) {
  EXPECT_EQ(lines_of("status=1"), (Numbered{{"status=", 1}}));
  EXPECT_EQ(lines_of("status=1\n"), (Numbered{{"status=1", 1}}));
  EXPECT_EQ(lines_of("localGid ::"), (Numbered{{"localGid ", 1}}));
  EXPECT_EQ(lines_of("it failed"), (Numbered{{"it failed", 1}}));
}

TEST(Lines, LongOnesAreCut) {
  const auto found = lines_of(std::string(3 * longest_line + 5, 'x') + "\n");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found.back(), (std::pair<std::string, std::uint64_t>{"xxxxx", 1}));
}

TEST(Anchors, FindEveryTextOnce) {
  const std::string_view texts[] = {"he", "she", "his", "hers", "error 12"};
  const Anchors anchors(texts);
  Anchors::Seen seen;
  const auto found = [&](std::string_view line) {
    std::vector<std::pair<int, std::size_t>> hits;
    anchors.scan(line, seen, [&](std::uint16_t text, std::size_t end) { hits.emplace_back(text, end); });
    return hits;
  };
  using Hits = std::vector<std::pair<int, std::size_t>>;
  EXPECT_EQ(found("uSHErs"), (Hits{{1, 4}, {0, 4}, {3, 6}}));
  EXPECT_EQ(found("she she"), (Hits{{1, 3}, {0, 3}}));
  EXPECT_EQ(found("with Error 12,"), (Hits{{4, 13}}));
  EXPECT_EQ(found("errerror 1 2 h"), Hits{});
}

TEST(Printable, HasNoControlCharacters) {
  EXPECT_EQ(printable("a\x1b[31m\x01\xff z"), "a\\x1b[31m\\x01\\xff z");
  EXPECT_EQ(printable("Größe"), "Größe");
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "evil"),
            "\\xe2\\x80\\xaeevil");  // right-to-left override
  EXPECT_EQ(printable(std::string(500, 'x'), 10), "xxxxxxxxxx…");
  EXPECT_EQ(printable("\xc3"), "\\xc3");
}

TEST(Numbers, StopWhereTheyEnd) {
  EXPECT_EQ(number(" 12,x"), 12);
  EXPECT_EQ(number("-9)"), -9);
  EXPECT_EQ(number("x12"), std::nullopt);
  EXPECT_EQ(number("99999999999999999999"), std::nullopt);
  EXPECT_EQ(hex("0x15 vend"), 0x15u);
  EXPECT_EQ(hex("12345678901234567"), std::nullopt);
}

TEST(Gids, OfPerftestAreDecimal) {
  const auto v4 = parse_decimal_gid("00:00:00:00:00:00:00:00:00:00:255:255:192:168:01:39");
  ASSERT_TRUE(v4.has_value());
  EXPECT_TRUE(v4->is_v4());
  EXPECT_EQ(*v4, parse_gid("::ffff:192.168.1.39"));
  const auto local = parse_decimal_gid("254:128:00:00:00:00:00:00:162:136:194:255:254:91:03:236");
  ASSERT_TRUE(local.has_value());
  EXPECT_TRUE(local->is_link_local());
  EXPECT_FALSE(parse_decimal_gid("256:00").has_value());
  EXPECT_FALSE(parse_decimal_gid("1:2:3").has_value());
  EXPECT_TRUE(parse_gid("::")->is_zero());
}

}  // namespace
}  // namespace beeline::doctor::log
