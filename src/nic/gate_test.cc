#include "nic/gate.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace beeline::nic {
namespace {

TEST(Gate, StartsClosedAndLetsNobodyInWhenClosed) {
  Gate gate;
  EXPECT_FALSE(gate.enter());
  gate.open();
  EXPECT_TRUE(gate.enter());
  EXPECT_TRUE(gate.enter()) << "as many as come";
  gate.leave();
  gate.leave();
  gate.close();
  EXPECT_FALSE(gate.enter());
}

// What the gate protects is a plain variable: the thread sanitizer, and the value, tell when somebody
// is inside after close().
TEST(Gate, CloseWaitsForWhoeverIsInside) {
  constexpr int rounds = 200;
  Gate gate;
  bool usable = false;  // written outside only, read inside only
  std::atomic<bool> stop{false};
  std::atomic<int> violations{0}, entries{0};
  std::vector<std::thread> users;
  users.reserve(3);
  for (int t = 0; t < 3; ++t)
    users.emplace_back([&] {
      while (!stop) {
        if (gate.enter()) {
          if (!usable) ++violations;
          ++entries;
          gate.leave();
        }
        std::this_thread::yield();
      }
    });
  for (int i = 0; i < rounds; ++i) {
    usable = true;
    const int before = entries;
    gate.open();
    while (entries == before) std::this_thread::yield();
    gate.close();
    usable = false;
  }
  stop = true;
  for (auto& user : users) user.join();
  EXPECT_EQ(violations, 0);
  EXPECT_GE(entries, rounds);
}

}  // namespace
}  // namespace beeline::nic
