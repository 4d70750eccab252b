// Atomics, windows and changed regions between two cards, honest and hostile.
#include <cstring>

#include "nic/key_table.h"
#include "nic/two_cards.h"

namespace beeline::nic::test {
namespace {

using proto::Access;
using proto::PostResult;
using proto::QpState;
using proto::WcOpcode;
using proto::WcStatus;
using proto::WrOpcode;

class CardMemory : public TwoCards {
 protected:
  void SetUp() override {
    EndOptions options;
    options.access = full_access | Access::window_bind;
    connect_both(options);
  }
  WcStatus left_result() {
    EXPECT_TRUE(run_until([&] { return !left_->done.empty(); }));
    if (left_->done.empty()) return WcStatus::bad_response;
    const WcStatus status = left_->done.front().status;
    left_->done.erase(left_->done.begin());
    return status;
  }
  std::uint64_t word(End& end, std::size_t offset) {
    std::uint64_t value = 0;
    std::memcpy(&value, end.memory().data() + offset, sizeof value);
    return value;
  }
  WcStatus atomic(WrOpcode opcode, std::uint64_t compare, std::uint64_t swap_or_add, std::uint64_t remote,
                  Key rkey) {
    const proto::Sge piece = left_->sge(64, 8);
    proto::SendWr wr;
    wr.opcode = opcode;
    wr.signaled = true;
    wr.remote_address = remote;
    wr.rkey = rkey;
    wr.compare = compare;
    wr.swap_or_add = swap_or_add;
    wr.sges = {&piece, 1};
    EXPECT_EQ(left_card_->post_send(left_->qp(), wr), PostResult::ok);
    return left_result();
  }
  WcStatus write(Key rkey, std::uint64_t remote, std::size_t bytes = 8) {
    const proto::Sge piece = left_->sge(0, bytes);
    proto::SendWr wr;
    wr.opcode = WrOpcode::write;
    wr.signaled = true;
    wr.remote_address = remote;
    wr.rkey = rkey;
    wr.sges = {&piece, 1};
    EXPECT_EQ(left_card_->post_send(left_->qp(), wr), PostResult::ok);
    return left_result();
  }
  // On the right, a window on its bytes 1000 … 1999.
  Key bind(Key window, End& by) {
    proto::WindowBind bind;
    bind.window = window;
    bind.new_rkey = Key{window.value + 1};
    bind.region = by.keys().lkey;
    bind.address = by.address_of(1000);
    bind.length = 1000;
    bind.access = static_cast<std::uint8_t>(Access::remote_write | Access::remote_read);
    proto::SendWr wr;
    wr.opcode = WrOpcode::bind_mw;
    wr.signaled = true;
    wr.bind = &bind;
    EXPECT_EQ(by.card().post_send(by.qp(), wr), PostResult::ok);
    EXPECT_TRUE(run_until([&] {
      by.poll();
      return !by.done.empty();
    }));
    EXPECT_EQ(by.done.at(0).status, WcStatus::success);
    EXPECT_EQ(by.done.at(0).opcode, WcOpcode::bind_mw);
    by.done.clear();
    return KeyTable::variant(window, bind.new_rkey);
  }
  Key window(WindowType type = WindowType::type_2) {
    return value_of(right_card_->allocate_window(right_->domain(), type));
  }
};

TEST_F(CardMemory, AtomicsChangeThePeerAndTellWhatWasThere) {
  const Key rkey = right_->keys().rkey;
  const std::uint64_t at = right_->address_of(128);
  ASSERT_EQ(atomic(WrOpcode::fetch_add, 0, 5, at, rkey), WcStatus::success);
  EXPECT_EQ(word(*left_, 64), 0u);
  EXPECT_EQ(word(*right_, 128), 5u);
  ASSERT_EQ(atomic(WrOpcode::compare_swap, 5, UINT64_MAX, at, rkey), WcStatus::success);
  EXPECT_EQ(word(*left_, 64), 5u);
  EXPECT_EQ(word(*right_, 128), UINT64_MAX);
  ASSERT_EQ(atomic(WrOpcode::compare_swap, 5, 1, at, rkey), WcStatus::success);
  EXPECT_EQ(word(*left_, 64), UINT64_MAX);
  EXPECT_EQ(word(*right_, 128), UINT64_MAX);
  ASSERT_EQ(atomic(WrOpcode::fetch_add, 0, 2, at, rkey), WcStatus::success);
  EXPECT_EQ(word(*right_, 128), 1u) << "it wraps";
}

// A duplicate request must get the saved answer and must not be executed again.
TEST_F(CardMemory, AtomicsHappenOnceOnALossyNetwork) {
  network_.set_faults({.loss = 0.1, .duplicate = 0.1, .reorder = 0.1, .corrupt = 0.05, .no_room = 0.05});
  for (std::uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(atomic(WrOpcode::fetch_add, 0, 3, right_->address_of(128), right_->keys().rkey),
              WcStatus::success);
    ASSERT_EQ(word(*left_, 64), 3 * i);
  }
  EXPECT_EQ(word(*right_, 128), 600u);
}

TEST_F(CardMemory, AtomicsOnMemoryThatWentAwayFailAndHarmNobody) {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  const auto keys =
      value_of(right_card_->register_region(right_->domain(), memory, 4096, address, full_access));
  take_away(memory, 4096);
  EXPECT_NE(atomic(WrOpcode::fetch_add, 0, 1, address, keys.rkey), WcStatus::success);
  EXPECT_EQ(left_->state(), QpState::err);
  EXPECT_TRUE(succeeds(right_card_->deregister_region(keys.lkey)));
  ::munmap(memory, 4096);
}

TEST_F(CardMemory, AtomicsNeedTheRightOfTheRegion) {
  std::array<std::uint64_t, 2> words{};
  const auto address = reinterpret_cast<std::uint64_t>(words.data());
  const auto keys = value_of(right_card_->register_region(
      right_->domain(), words.data(), sizeof words, address, Access::local_write | Access::remote_write));
  EXPECT_EQ(atomic(WrOpcode::fetch_add, 0, 1, address, keys.rkey), WcStatus::remote_access_error);
  EXPECT_EQ(words[0], 0u);
  EXPECT_TRUE(run_until([&] { return right_->count(CardEvent::qp_access_violation) == 1; }));
  EXPECT_TRUE(succeeds(right_card_->deregister_region(keys.lkey)));
}

TEST_F(CardMemory, AWindowServesUntilItIsInvalidated) {
  const Key key = bind(window(), *right_);
  left_->fill(0, 1000, 7);
  EXPECT_EQ(write(key, right_->address_of(1000), 1000), WcStatus::success);
  EXPECT_EQ(std::memcmp(right_->memory().data() + 1000, left_->memory().data(), 1000), 0);
  EXPECT_EQ(right_card_->deregister_region(right_->keys().lkey).error().code, Errc::in_use);

  proto::SendWr wr;
  wr.opcode = WrOpcode::local_inv;
  wr.signaled = true;
  wr.invalidate = key;
  ASSERT_EQ(right_card_->post_send(right_->qp(), wr), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return !right_->done.empty(); }));
  EXPECT_EQ(right_->done[0].status, WcStatus::success);
  EXPECT_EQ(right_->done[0].opcode, WcOpcode::local_inv);
  EXPECT_EQ(write(key, right_->address_of(1000)), WcStatus::remote_access_error);
  EXPECT_TRUE(succeeds(right_card_->deallocate_window(key)));
}

TEST_F(CardMemory, SendWithInvalidateEndsAWindow) {
  const Key key = bind(window(), *right_);
  ASSERT_EQ(right_->receive(1, 0, 100), PostResult::ok);
  proto::SendWr wr;
  wr.opcode = WrOpcode::send_inv;
  wr.signaled = true;
  wr.invalidate = key;
  ASSERT_EQ(left_card_->post_send(left_->qp(), wr), PostResult::ok);
  EXPECT_EQ(left_result(), WcStatus::success);
  ASSERT_TRUE(run_until([&] { return !right_->done.empty(); }));
  EXPECT_TRUE(right_->done[0].has_invalidated);
  EXPECT_EQ(right_->done[0].invalidated, key);
  EXPECT_EQ(write(key, right_->address_of(1000)), WcStatus::remote_access_error);
  EXPECT_TRUE(succeeds(right_card_->deallocate_window(key)));
}

TEST_F(CardMemory, APeerCannotInvalidateARegion) {
  ASSERT_EQ(right_->receive(1, 0, 100), PostResult::ok);
  proto::SendWr wr;
  wr.opcode = WrOpcode::send_inv;
  wr.signaled = true;
  wr.invalidate = right_->keys().rkey;
  ASSERT_EQ(left_card_->post_send(left_->qp(), wr), PostResult::ok);
  EXPECT_NE(left_result(), WcStatus::success);
  End other(*right_card_);
  std::byte one{};
  EXPECT_TRUE(succeeds(right_card_->deregister_region(
      value_of(right_card_->register_region(right_->domain(), &one, 1, 0, Access::none)).lkey)));
}

TEST_F(CardMemory, AnotherQueuePairsWindowIsRefused) {
  EndOptions options;
  options.access = full_access | Access::window_bind;
  options.domain = right_->domain();
  End other_right(*right_card_, options), other_left(*left_card_);
  connect(other_left, other_right);
  const Key key = bind(window(), other_right);
  EXPECT_EQ(write(key, other_right.address_of(1000)), WcStatus::remote_access_error);
  EXPECT_EQ(other_right.memory()[1000], std::byte{0});
  EXPECT_TRUE(run_until([&] { return right_->count(CardEvent::qp_access_violation) == 1; }));
  // Its owner takes the binding along.
  EXPECT_EQ(right_card_->deregister_region(other_right.keys().lkey).error().code, Errc::in_use);
  other_right.destroy_queue_pair();
  other_right.deregister();
  EXPECT_TRUE(succeeds(right_card_->deallocate_window(key)));
}

TEST_F(CardMemory, ABindThatIsWrongFailsAsABind) {
  const Key of_nothing = window();
  proto::WindowBind bad;
  bad.window = of_nothing;
  bad.new_rkey = Key{of_nothing.value + 1};
  bad.region = Key{123};
  bad.address = right_->address_of(0);
  bad.length = 10;
  proto::SendWr wr;
  wr.opcode = WrOpcode::bind_mw;
  wr.bind = &bad;
  ASSERT_EQ(right_card_->post_send(right_->qp(), wr), PostResult::ok);
  ASSERT_TRUE(run_until([&] { return !right_->done.empty(); }));
  EXPECT_EQ(right_->done[0].status, WcStatus::window_bind_error);
  EXPECT_EQ(right_->state(), QpState::err);
  EXPECT_TRUE(succeeds(right_card_->deallocate_window(of_nothing)));
}

// READ responses leave by reference, while the window they came by is invalidated, bound anew and
// deallocated: in the middle of batches, over and over, by the same queue pair.
TEST_F(CardMemory, InvalidatingUnderTrafficEndsInAnErrorAndNeverInAHang) {
  for (int round = 0; round < 20; ++round) {
    EndOptions options;
    options.access = full_access | Access::window_bind;
    End reader(*left_card_), owner(*right_card_, options);
    connect(reader, owner);
    proto::WindowBind all;
    const Key fresh = value_of(right_card_->allocate_window(owner.domain(), WindowType::type_2));
    all.window = fresh;
    all.new_rkey = Key{fresh.value + 1};
    all.region = owner.keys().lkey;
    all.address = owner.address_of(0);
    all.length = owner.memory().size();
    all.access = static_cast<std::uint8_t>(Access::remote_read);
    proto::SendWr wr;
    wr.opcode = WrOpcode::bind_mw;
    wr.bind = &all;
    ASSERT_EQ(right_card_->post_send(owner.qp(), wr), PostResult::ok);
    const Key key = KeyTable::variant(fresh, all.new_rkey);
    proto::SendWr read;
    const proto::Sge piece = reader.sge(0, 400000);
    read.opcode = WrOpcode::read;
    read.signaled = true;
    read.rkey = key;
    read.remote_address = owner.address_of(0);
    read.sges = {&piece, 1};
    for (int i = 0; i < 4; ++i) ASSERT_EQ(left_card_->post_send(reader.qp(), read), PostResult::ok);
    const std::uint64_t carried = network_.carried();
    ASSERT_TRUE(run_until([&] {
      reader.poll();
      owner.poll();
      return network_.carried() > carried + static_cast<std::uint64_t>(round * 10);
    }));
    proto::SendWr end;
    end.opcode = WrOpcode::local_inv;
    end.invalidate = key;
    ASSERT_EQ(right_card_->post_send(owner.qp(), end), PostResult::ok);
    ASSERT_TRUE(run_until([&] {
      reader.poll();
      owner.poll();
      return reader.done.size() == 4;
    }));
    EXPECT_TRUE(reader.failed());
    EXPECT_TRUE(succeeds(right_card_->deallocate_window(key)));
  }
}

TEST_F(CardMemory, AChangedRegionKeepsItsKeyAndNothingElse) {
  std::vector<std::byte> other(4096);
  const auto keys = right_->keys();
  RegionChange change;
  change.range = RegionChange::Range{other.data(), other.size(), 0x5000};
  EXPECT_EQ(value_of(right_card_->reregister_region(keys.lkey, change)).rkey, keys.rkey);
  left_->fill(0, 8, 3);
  EXPECT_EQ(write(keys.rkey, 0x5000), WcStatus::success);
  EXPECT_EQ(std::memcmp(other.data(), left_->memory().data(), 8), 0);
  EXPECT_EQ(write(keys.rkey, right_->address_of(0)), WcStatus::remote_access_error);
  EXPECT_EQ(right_->memory()[0], std::byte{0});
}

TEST_F(CardMemory, ARegionThatMovesToAnotherDomainIsCountedThere) {
  const PdId other = value_of(right_card_->create_domain());
  RegionChange change;
  change.domain = other;
  ASSERT_TRUE(right_card_->reregister_region(right_->keys().lkey, change).has_value());
  EXPECT_EQ(right_card_->destroy_domain(other).error().code, Errc::in_use);
  EXPECT_EQ(write(right_->keys().rkey, right_->address_of(0)), WcStatus::remote_access_error);
  change.domain = PdId{4711};
  EXPECT_EQ(right_card_->reregister_region(right_->keys().lkey, change).error().code, Errc::not_found);
  change.domain = right_->domain();
  ASSERT_TRUE(right_card_->reregister_region(right_->keys().lkey, change).has_value());
  EXPECT_TRUE(succeeds(right_card_->destroy_domain(other)));
}

TEST_F(CardMemory, WindowsKeepTheirDomain) {
  const PdId domain = value_of(right_card_->create_domain());
  const Key key = value_of(right_card_->allocate_window(domain, WindowType::type_1));
  EXPECT_EQ(right_card_->destroy_domain(domain).error().code, Errc::in_use);
  EXPECT_TRUE(succeeds(right_card_->deallocate_window(key)));
  EXPECT_EQ(right_card_->deallocate_window(key).error().code, Errc::not_found);
  EXPECT_TRUE(succeeds(right_card_->destroy_domain(domain)));
  EXPECT_EQ(right_card_->allocate_window(domain, WindowType::type_1).error().code, Errc::not_found);
}

}  // namespace
}  // namespace beeline::nic::test
