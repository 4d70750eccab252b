// The roll call alone, over messages that arrive in any order: nobody completes a call before everybody
// has begun it, and nobody at all completes one that a single rank made differently.

#include "exec/run/roll_call.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace beeline::exec {
namespace {

constexpr int max_size = 17, calls = 4;

Fingerprint call_number(std::uint64_t sequence, bool odd) {
  return {.sequence = sequence, .count = odd ? 2u : 1u, .operation = coll::Operation::broadcast};
}

// Ranks that do one thing at a time, in an order drawn from a seed: begin a call, or take a message.
// Messages of a pair keep their order, as on a reliable connection.
class Group {
 public:
  // `offender` makes its call `odd_call` differently.
  Group(int size, int offender, std::uint64_t odd_call, std::uint64_t seed)
      : size_(size), offender_(offender), odd_call_(odd_call), random_(seed) {
    for (int rank = 0; rank < size; ++rank) members_.emplace_back(Rank{rank}, size);
    wires_.resize(members_.size() * members_.size());
  }

  void run() {
    for (int idle = 0; idle < 40 * size_ * size_; ++idle)
      if (random_.below(3) == 0 ? begin(any()) : take(any(), any())) idle = 0;
  }
  std::uint64_t completed(int rank) const { return member(rank).completed; }
  std::uint64_t sent() const { return sent_; }
  const std::optional<Error>& error(int rank) const { return member(rank).error; }

 private:
  struct Member {
    Member(Rank rank, int size) : roll_call(rank, size) {}
    RollCall roll_call;
    std::uint64_t begun = 0, completed = 0;
    std::optional<Error> error;
  };

  int any() { return static_cast<int>(random_.below(static_cast<std::uint64_t>(size_))); }
  Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  const Member& member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  std::vector<Fingerprint>& wire(int from, int to) {
    return wires_[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
  }
  Fingerprint call_of(int rank) const {
    const std::uint64_t sequence = member(rank).begun;
    return call_number(sequence, rank == offender_ && sequence == odd_call_);
  }

  bool begin(int rank) {
    Member& me = member(rank);
    if (me.error || me.begun != me.completed || me.begun == calls) return false;
    ++me.begun;
    me.roll_call.begin(call_of(rank));
    go_on(rank);
    return true;
  }
  bool take(int from, int to) {
    auto& messages = wire(from, to);
    if (messages.empty() || member(to).error) return false;
    const auto heard = member(to).roll_call.hear(Rank{from}, messages.front());
    EXPECT_TRUE(heard) << heard.error().message;
    messages.erase(messages.begin());
    if (member(to).begun != member(to).completed) go_on(to);
    return true;
  }
  void go_on(int rank) {
    Member& me = member(rank);
    me.error = me.roll_call.difference();
    while (!me.error && me.roll_call.to_tell()) {
      wire(rank, me.roll_call.to_tell()->value).push_back(call_of(rank));
      me.roll_call.told();
      ++sent_;
    }
    if (me.error || !me.roll_call.complete()) return;
    me.completed = me.begun;
    for (const Member& other : members_) EXPECT_GE(other.begun, me.completed);
  }

  int size_, offender_;
  std::uint64_t odd_call_;
  Prng random_;
  std::vector<Member> members_;
  std::vector<std::vector<Fingerprint>> wires_;
  std::uint64_t sent_ = 0;
};

TEST(RollCall, EverybodyCompletesWhatEverybodyCalled) {
  for (int size = 1; size <= max_size; ++size) {
    Group group(size, -1, 0, static_cast<std::uint64_t>(size));
    group.run();
    std::uint64_t rounds = 0;
    for (int reached = 1; reached < size; reached *= 2) ++rounds;
    EXPECT_EQ(group.sent(), rounds * static_cast<std::uint64_t>(size) * calls);
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(group.completed(rank), calls) << rank << " of " << size;
  }
}

TEST(RollCall, NobodyCompletesWhatOneRankCalledDifferently) {
  constexpr std::uint64_t odd_call = 3;
  for (int size = 2; size <= max_size; ++size)
    for (int offender = 0; offender < size; ++offender) {
      SCOPED_TRACE(fmt::format("rank {} of {}", offender, size));
      Group group(size, offender, odd_call, static_cast<std::uint64_t>(size * 100 + offender));
      group.run();
      EXPECT_TRUE(group.error(offender));
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(group.completed(rank), odd_call - 1);
        if (const auto& error = group.error(rank)) {
          EXPECT_NE(error->message.find(fmt::format("rank {} called broadcast(uint8, 2", offender)),
                    std::string::npos)
              << error->message;
        }
      }
    }
}

TEST(RollCall, BlamesOnlyARankThatSpeaksForItself) {
  RollCall roll_call(Rank{0}, 4);
  roll_call.begin(call_number(1, false));
  EXPECT_EQ(roll_call.missing(), Rank{1});
  ASSERT_TRUE(roll_call.hear(Rank{1}, call_number(1, false)));
  // Rank 2 may be here and wait for rank 3.
  EXPECT_EQ(roll_call.missing(), std::nullopt);
  EXPECT_EQ(roll_call.silent(), std::vector{Rank{2}});
}

TEST(RollCall, AnAdvertSpeaksForItsSenderOnly) {
  RollCall roll_call(Rank{0}, 4);
  roll_call.begin(call_number(1, false));
  roll_call.overhear(Rank{2}, call_number(1, false));
  roll_call.overhear(Rank{1}, call_number(1, false));
  EXPECT_EQ(roll_call.silent(), std::vector{Rank{2}});
}

TEST(RollCall, RefusesRanksOutOfTurn) {
  RollCall roll_call(Rank{0}, 5);
  roll_call.begin(call_number(1, false));
  EXPECT_FALSE(roll_call.hear(Rank{3}, call_number(1, false)));
  EXPECT_FALSE(roll_call.hear(Rank{4}, call_number(2, false)));
  ASSERT_TRUE(roll_call.hear(Rank{4}, call_number(1, false)));
  EXPECT_FALSE(roll_call.hear(Rank{4}, call_number(1, false)));
  ASSERT_TRUE(roll_call.hear(Rank{4}, call_number(2, false)));
  EXPECT_FALSE(roll_call.hear(Rank{4}, call_number(3, false)));
}

}  // namespace
}  // namespace beeline::exec
