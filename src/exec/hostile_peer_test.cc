// A peer that follows the protocol up to some point, and then sends nonsense: that is an
// error that names it, never a crash, a hang, or a byte in the wrong place.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/random.h"
#include "exec/connections/establish.h"
#include "exec/limits.h"
#include "exec/test_group.h"

namespace beeline::exec {
namespace {

using coll::Operation;
using ::testing::HasSubstr;
using testing::TestGroup;

constexpr std::size_t elements = 32768;  // too many for a parcel: adverts ask for the data
constexpr std::size_t few = 64;          // a small call
static_assert(elements * sizeof(float) > parcel_bytes(2) && few * sizeof(float) <= parcel_bytes(2));

// Rank 1, played by hand. Keeps the adverts that rank 0 sent.
class Villain : public Listener {
 public:
  explicit Villain(TestGroup& group) : id_(communicator_id(group.options(1).name, 2)) {
    const Terms terms{.size = 2, .communicator = id_, .piece_bytes = group.options(1).piece_bytes};
    connections_ =
        establish(group.provider(), group.context(1), group.gid(1), Rank{1}, terms, group.control(1), 20s)
            .value();
  }

  Fingerprint call(std::uint64_t sequence = 1) const {
    return {.sequence = sequence,
            .count = elements,
            .operation = Operation::all_reduce,
            .dtype = DType::float32,
            .communicator = id_};
  }
  void say(const Message& message) {
    wait_until([&] { return connections_->has_room(Rank{0}); });
    ASSERT_TRUE(connections_->send(Rank{0}, message, true));
  }
  // What an honest rank 1 would send in a small call.
  Message parcel(std::uint64_t sequence = 1) const {
    Message message{.kind = MessageKind::parcel, .call = call(sequence)};
    message.call.count = few;
    return message;
  }
  void send_parcel(const Message& message, std::size_t payload = few * sizeof(float)) {
    const auto bytes = static_cast<std::uint32_t>(message_bytes + payload);
    std::byte* slot = nullptr;
    wait_until([&] { return (slot = connections_->parcel_slot(Rank{0}, bytes)) != nullptr; });
    const auto header = encode(message);
    std::copy(header.begin(), header.end(), slot);
    std::fill_n(slot + message_bytes, payload, std::byte{1});
    ASSERT_TRUE(connections_->send_parcel(Rank{0}, bytes));
  }

  // What an honest rank 1 would ask for first.
  Message advert() const {
    return {.kind = MessageKind::advert,
            .call = call(),
            .address = 4096,
            .rkey = 1,
            .bytes = elements / 2 * sizeof(float)};
  }
  const Message& first_invitation() {
    wait_until([&] { return !invitations_.empty(); });
    return invitations_.front();
  }
  void write(const Write& request) { ASSERT_TRUE(connections_->write(Rank{0}, request)); }
  // What an honest rank 1 would answer.
  void answer_first_invitation() {
    const Message& advert = first_invitation();
    if (!region_) {
      region_ = connections_->register_memory(data_.data(), sizeof data_, IBV_ACCESS_LOCAL_WRITE).value();
    }
    write({.from = data_.data(),
           .lkey = region_->lkey,
           .bytes = advert.bytes,
           .remote_address = advert.address,
           .rkey = advert.rkey,
           .ticket = advert.ticket});
  }

  void on_message(Rank, const Message& message) override {
    if (message.kind == MessageKind::advert) invitations_.push_back(message);
  }
  void on_parcel(Rank, const Parcel&) override {}
  void on_data(Rank, std::uint32_t, std::uint32_t) override {}
  void on_written(Rank, std::uint32_t) override {}
  void on_broken(Rank, Error) override {}

 private:
  void wait_until(const std::function<bool()>& over) {
    const TimePoint deadline = monotonic_now() + 20s;
    while (!over() && monotonic_now() < deadline)
      if (connections_->poll(*this) == 0) std::this_thread::sleep_for(100us);
    ASSERT_TRUE(over());
  }

  std::uint32_t id_;
  std::unique_ptr<Connections> connections_;
  std::array<float, elements> data_{};
  verbs::MemoryRegion region_;
  std::vector<Message> invitations_;
};

struct Attack {
  const char* what;
  std::function<void(Villain&)> act;
  const char* expected;
};

void say_changed(Villain& v, const std::function<void(Message&)>& change) {
  Message message = v.advert();
  change(message);
  v.say(message);
}

const Attack attacks[] = {
    {"a second probe", [](Villain& v) { v.say({.kind = MessageKind::probe}); }, "sent a second probe"},
    {"a call out of turn", [](Villain& v) { v.say({.kind = MessageKind::call, .call = v.call(2)}); },
     "announced its call 2 after its call 0"},
    {"the same call twice",
     [](Villain& v) {
       v.say({.kind = MessageKind::call, .call = v.call(1)});
       v.say({.kind = MessageKind::call, .call = v.call(1)});
     },
     "announced its call 1 after its call 1"},
    {"a call of another group",
     [](Villain& v) {
       Message message{.kind = MessageKind::call, .call = v.call()};
       ++message.call.communicator;
       v.say(message);
     },
     "their groups differ in name or size"},
    {"an advert of call 0", [](Villain& v) { say_changed(v, [](Message& m) { m.call.sequence = 0; }); },
     "asks for data of its call 0"},
    {"an advert of another call", [](Villain& v) { say_changed(v, [](Message& m) { m.call.count = 1; }); },
     "rank 1 called all_reduce(sum, float32, 1 element)"},
    {"a piece that does not exist", [](Villain& v) { say_changed(v, [](Message& m) { m.piece = 1; }); },
     "asks for message 0 of piece 1 in call 1, which does not exist"},
    {"a message that does not exist",
     [](Villain& v) { say_changed(v, [](Message& m) { m.ordinal = 1u << 31; }); }, "which does not exist"},
    {"another size", [](Villain& v) { say_changed(v, [](Message& m) { m.bytes = 0xFFFFFFFF; }); },
     "expects 4294967295 bytes where rank 0 has 65536"},
    {"a wrong key", [](Villain& v) { v.say(v.advert()); }, "remote access error"},
    {"adverts without end",
     [](Villain& v) {
       for (std::uint32_t i = 0; i <= adverts_per_peer; ++i)
         say_changed(v, [&](Message& m) { m.call.sequence = 1000 + i; });
     },
     "adverts at once"},
    {"data that nobody asked for", [](Villain& v) { v.write({.ticket = 0xFFFF0000}); }, "did not ask for"},
    {"a ticket beyond the table", [](Villain& v) { v.write({.ticket = 0xFF}); }, "did not ask for"},
    {"a ticket used twice",
     [](Villain& v) {
       v.answer_first_invitation();
       v.answer_first_invitation();
     },
     "did not ask for"},
    {"less data than asked for", [](Villain& v) { v.write({.ticket = v.first_invitation().ticket}); },
     "sent 0 bytes where rank 0 asked for 65536"},
    {"a parcel in a large call", [](Villain& v) { v.send_parcel(v.parcel()); },
     "rank 1 called all_reduce(sum, float32, 64 elements)"},
    {"a parcel of the same large call",
     [](Villain& v) {
       Message message = v.parcel();
       message.call = v.call();
       v.send_parcel(message);
     },
     "rank 1 treats call 1 as a small one"},
    {"a parcel of a distant call", [](Villain& v) { v.send_parcel(v.parcel(3)); }, "sent data of its call 3"},
    {"a goodbye in the middle", [](Villain& v) { v.say({.kind = MessageKind::goodbye, .call = v.call(0)}); },
     "left the group after 0 calls"},
};

// Against a call of rank 0 with so many elements.
void suffer(const Attack& attack, std::size_t count) {
  SCOPED_TRACE(attack.what);
  const auto provider = verbs::make_fake_provider();
  TestGroup group(*provider, 2);
  std::unique_ptr<Villain> villain;
  group.on_all_ranks([&](int rank) {
    if (rank == 0)
      group.create(0);
    else
      villain = std::make_unique<Villain>(group);
  });
  std::array<float, elements> data{};
  const auto work = group[0]
                        .submit({Operation::all_reduce, data.data(), data.data(), count, DType::float32,
                                 RedOp::sum, Rank{0}})
                        .value();
  attack.act(*villain);
  const auto result = work->wait(60s);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().code, Errc::timed_out);
  EXPECT_THAT(result.error().message, HasSubstr(attack.expected));
  EXPECT_THAT(result.error().message, HasSubstr("rank 1"));
}

TEST(HostilePeer, IsNamedAndDoesNoHarm) {
  for (const Attack& attack : attacks) suffer(attack, elements);
}

const Attack attacks_on_small_calls[] = {
    {"another call",
     [](Villain& v) {
       Message message = v.parcel();
       message.call.redop = RedOp::max;
       v.send_parcel(message);
     },
     "rank 1 called all_reduce(max, float32, 64 elements)"},
    {"less data", [](Villain& v) { v.send_parcel(v.parcel(), 0); }, "sent 0 bytes where rank 0 expects 256"},
    {"more data", [](Villain& v) { v.send_parcel(v.parcel(), 260); },
     "sent 260 bytes where rank 0 expects 256"},
    {"call 0", [](Villain& v) { v.send_parcel(v.parcel(0)); }, "sent data of its call 0"},
    {"a call out of turn", [](Villain& v) { v.send_parcel(v.parcel(3)); }, "sent data of its call 3"},
    {"the next call twice",
     [](Villain& v) {
       v.send_parcel(v.parcel(2));
       v.send_parcel(v.parcel(2));
     },
     "sent data of its call 2"},
    {"an operation that does not exist",
     [](Villain& v) {
       Message message = v.parcel();
       message.call.operation = static_cast<Operation>(77);
       v.send_parcel(message);
     },
     "makes no sense"},
    {"a large call's announcement", [](Villain& v) { v.say({.kind = MessageKind::call, .call = v.call()}); },
     "rank 1 called all_reduce(sum, float32, 32768 elements)"},
    {"an announcement of the same call",
     [](Villain& v) {
       Message message{.kind = MessageKind::call, .call = v.parcel().call};
       v.say(message);
     },
     "rank 1 treats call 1 as a large one"},
    {"an advert", [](Villain& v) { v.say(v.advert()); },
     "rank 1 called all_reduce(sum, float32, 32768 elements)"},
    {"data that nobody asked for", [](Villain& v) { v.write({.ticket = 0}); }, "did not ask for"},
};

TEST(HostilePeer, OfASmallCallIsNamedAndDoesNoHarm) {
  for (const Attack& attack : attacks_on_small_calls) suffer(attack, few);
}

// Random bytes as messages, and random changes of honest ones.
TEST(HostilePeer, NoiseIsAnErrorAtWorst) {
  Prng random(11);
  for (int round = 0; round < 60; ++round) {
    const auto provider = verbs::make_fake_provider();
    TestGroup group(*provider, 2, [](CommunicatorOptions& options) { options.operation_timeout = 20ms; });
    std::unique_ptr<Villain> villain;
    group.on_all_ranks([&](int rank) {
      if (rank == 0)
        group.create(0);
      else
        villain = std::make_unique<Villain>(group);
    });
    std::array<float, elements> data{};
    const auto work = group[0]
                          .submit({Operation::all_reduce, data.data(), data.data(), elements, DType::float32,
                                   RedOp::sum, Rank{0}})
                          .value();
    for (int i = 0; i < 5; ++i) {
      auto bytes = encode(villain->advert());
      for (std::uint64_t n = random.below(4); n > 0; --n)
        bytes[random.below(bytes.size())] = std::byte{static_cast<std::uint8_t>(random.below(6))};
      const auto message = decode(bytes);
      if (message && message->kind == MessageKind::parcel)
        villain->send_parcel(*message, random.below(64));
      else if (message)
        villain->say(*message);
    }
    EXPECT_FALSE(work->wait(60s));
  }
}

}  // namespace
}  // namespace beeline::exec
