#include "nic/describe.h"

#include <gtest/gtest.h>

namespace beeline::nic {
namespace {

TEST(Describe, NamesTroubleOnlyWhereThereIsSome) {
  CardCounters counters;
  counters.received = 7;
  counters.sent = 9;
  counters.wire_payload_sent = 4096;
  EXPECT_EQ(describe(counters), "7 packets received (0 bytes), 9 sent (4096 bytes)");
  counters.icrc_bad = 2;
  counters.send_no_room = 1;
  EXPECT_EQ(
      describe(counters),
      "7 packets received (0 bytes), 9 sent (4096 bytes); 2 with a wrong ICRC; 1 put off, the socket was "
      "full");
}

TEST(Describe, SaysWhatWentThroughSharedMemory) {
  CardCounters counters;
  EXPECT_FALSE(has_moved_anything(counters));
  counters.local_payload_sent = 12;
  EXPECT_TRUE(has_moved_anything(counters));
  EXPECT_EQ(
      describe(counters),
      "0 packets received (0 bytes), 0 sent (0 bytes); through shared memory 0 bytes received, 12 sent");
}

TEST(Describe, SaysHowManyPacketsLeftInTrains) {
  CardCounters counters;
  counters.sent = 9;
  port::PortCounters port;
  port.trains_sent = 2;
  port.packets_in_trains = 8;
  EXPECT_EQ(describe(counters, port),
            "0 packets received (0 bytes), 9 sent (0 bytes); 8 of those sent left in 2 trains");
}

}  // namespace
}  // namespace beeline::nic
