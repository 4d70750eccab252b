#include "api/counters_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace beeline::api {
namespace {

TEST(CountersFile, ALineSaysWhichLaneCarriedWhat) {
  nic::CardCounters card;
  card.wire_payload_sent = (1ull << 40) + 1;
  card.wire_payload_received = 7;
  card.local_payload_sent = 20;
  card.local_payload_stored = 12;
  card.sent = 3;
  card.icrc_bad = 2;
  port::PortCounters port;
  port.handed_over = 5;
  const std::string line = counters_line(card, port, "odd \"name\" \xFF", 42);
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "one line";
  const auto read = nlohmann::json::parse(line);
  EXPECT_EQ(read["version"], 1);
  EXPECT_EQ(read["pid"], 42);
  EXPECT_EQ(read["lanes"]["wire"]["payload_bytes_sent"], (1ull << 40) + 1);
  EXPECT_EQ(read["lanes"]["wire"]["payload_bytes_received"], 7);
  EXPECT_EQ(read["lanes"]["local"]["payload_bytes_sent"], 20);
  EXPECT_EQ(read["lanes"]["local"]["payload_bytes_stored"], 12);
  EXPECT_FALSE(read["lanes"]["wire"].contains("payload_bytes_stored"));
  EXPECT_EQ(read["packets"]["sent"], 3);
  EXPECT_EQ(read["packets"]["icrc_bad"], 2);
  EXPECT_EQ(read["packets"]["handed_over"], 5);
}

}  // namespace
}  // namespace beeline::api
