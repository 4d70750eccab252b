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

}  // namespace
}  // namespace beeline::nic
