// A process of this host that speaks the local lane's language and obeys none of its rules: what it says
// about WRITEs past the ring. It is this test, at the other end of a real socket.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "base/abstract_name.h"
#include "nic/card_fixture.h"
#include "nic/local/link.h"
#include "nic/real_ports.h"
#include "port/udp/udp_port.h"

namespace beeline::nic::test {
namespace {

using local::Kind;
using local::Link;
using local::Message;
using local::SharedMemory;
using proto::PostResult;
using proto::WrOpcode;

constexpr std::size_t page_bytes = 4096;
constexpr std::uint64_t window = 0x100000;  // where its region lies, as it says
constexpr Key its_key{77};
constexpr Qpn its_number{0xEE0005};

std::unique_ptr<Card> open_card() {
  const port::Interface interface = interface_with(own_address(1));
  Config config;
  config.lane = Lane::local;
  config.log_level = "off";
  return value_of(Card::create(config, value_of(port::make_udp_port()), {&interface, 1}, false));
}

// Its end of a connection with a card.
class Neighbour {
 public:
  explicit Neighbour(End& end) : end_(end), link_(dial(end.card()), ::getpid()) {
    EXPECT_TRUE(succeeds(link_.open({&witness_})));
    EXPECT_TRUE(until([&] { return heard(Kind::hello).has_value(); }, [&] { look(); }));
  }

  // The queue pair shares a ring with us from here on.
  void join() {
    to_ = end_.address().qpn;
    rings_ = value_of(SharedMemory::create("rings", sizeof(proto::local::SharedPair)));
    Message ask = about(Kind::ask);
    ask.from_gid = own_address(2);
    ask.to_gid = end_.address().gid;
    ask.first_psn = psn;
    ask.expected_psn = end_.address().psn;
    ASSERT_TRUE(link_.send(ask, rings_.descriptor()));
    std::optional<Message> answer;
    ASSERT_TRUE(until([&] { return (answer = heard(Kind::answer)).has_value(); }, [&] { look(); }));
    ASSERT_EQ(answer->verdict, local::Verdict::accepted);
  }

  Message about(Kind kind) const {
    Message message;
    message.kind = kind;
    message.from = its_number;
    message.to = to_;
    message.key = its_key;
    return message;
  }
  void babble(std::size_t bytes) {
    const std::vector<std::byte> nonsense(bytes, std::byte{0x42});
    EXPECT_EQ(::send(link_.socket(), nonsense.data(), bytes, 0), static_cast<ssize_t>(bytes));
    look();
  }
  bool say(const Message& message, int file = -1) {
    const bool sent = link_.send(message, file);
    look();
    return sent;
  }
  // What the card has said, when it was this.
  std::optional<Message> heard(Kind kind) {
    Link::Received received;
    while (link_.receive(received) == Link::Status::received)
      if (received.message.kind == kind) return received.message;
    return std::nullopt;
  }
  // The card does all that there is to do.
  void look() {
    for (int i = 0; i < 200; ++i) end_.poll();
  }
  // Requests that came by the ring since the last time; they are said to be executed.
  int serve() {
    int served = 0;
    const auto& slots = pair().directions[1].slots;
    for (; slots[next_ % slots.size()].turn.load() == proto::local::turn_of(next_); ++served) ++next_;
    pair().sides[0].executed.store(proto::local::executed_word(next_, proto::local::Answer::ok));
    look();
    return served;
  }
  proto::local::SharedPair& pair() { return *static_cast<proto::local::SharedPair*>(rings_.data()); }

  static constexpr Psn psn{0x10};

 private:
  static Descriptor dial(Card& card) {
    Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const AbstractName name(fmt::format("beeline.local.{}", card.slot().value));
    EXPECT_EQ(::connect(socket.get(), name.get(), name.length), 0) << std::strerror(errno);
    return socket;
  }

  End& end_;
  std::uint64_t witness_ = 0x1234;
  Link link_;
  SharedMemory rings_;
  Qpn to_;
  std::uint64_t next_ = 0;
};

class MadNeighbour : public ::testing::Test {
 protected:
  void SetUp() override {
    end_.emplace(*card_, patient_options());
    end_->connect({its_number, Neighbour::psn, own_address(2), its_key, window});
    neighbour_.emplace(*end_);
    ASSERT_NO_FATAL_FAILURE(neighbour_->join());
  }

  PostResult write(std::uint64_t value, std::uint64_t address = window) {
    const proto::Sge sge{reinterpret_cast<std::uintptr_t>(&value), sizeof value, Key{}};
    proto::SendWr request;
    request.opcode = WrOpcode::write;
    request.inline_data = true;
    request.remote_address = address;
    request.rkey = its_key;
    request.sges = {&sge, 1};
    return card_->post_send(end_->qp(), request);
  }
  bool goes_by_the_ring(std::uint64_t address = window) {
    EXPECT_EQ(write(0xABCD, address), PostResult::ok);
    neighbour_->look();
    return neighbour_->serve() == 1;
  }
  // What an honest neighbour would say, once it was asked.
  Message grant() const {
    Message message = neighbour_->about(Kind::grant);
    message.id = 1;
    message.address = window;
    message.bytes = message.memory_bytes = page_bytes;
    return message;
  }
  void be_asked() {
    ASSERT_TRUE(goes_by_the_ring());
    const auto want = neighbour_->heard(Kind::want);
    ASSERT_TRUE(want);
    ASSERT_EQ(want->key, its_key);
    neighbour_->pair().gates[0].open.store(1);
  }
  static std::uint64_t first_word(const SharedMemory& memory) {
    std::uint64_t value = 0;
    std::memcpy(&value, memory.data(), sizeof value);
    return value;
  }

  std::unique_ptr<Card> card_ = open_card();
  std::optional<End> end_;
  std::optional<Neighbour> neighbour_;
};

// ---- grants

Descriptor file_of(std::size_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) {
  Descriptor file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

struct BadGrant {
  const char* what;
  void (*spoil)(Message& grant, Descriptor& file);
};
const BadGrant bad_grants[] = {
    {"without memory", [](Message&, Descriptor& file) { file.reset(); }},
    {"of another key", [](Message& grant, Descriptor&) { grant.key = Key{78}; }},
    {"without a number", [](Message& grant, Descriptor&) { grant.id = 0; }},
    {"with a number that is none in 32 bits",
     [](Message& grant, Descriptor&) { grant.id = std::uint64_t{1} << 32; }},
    {"of more than anybody maps",
     [](Message& grant, Descriptor& file) {
       grant.memory_bytes = std::uint64_t{1} << 40;
       file = file_of(std::size_t{1} << 40);
     }},
    {"of nothing",
     [](Message& grant, Descriptor& file) {
       grant.bytes = grant.memory_bytes = 0;
       file = file_of(0);
     }},
    {"that begins behind the memory", [](Message& grant, Descriptor&) { grant.offset = page_bytes + 1; }},
    {"that ends behind the memory", [](Message& grant, Descriptor&) { grant.offset = 8; }},
    {"whose end is beyond all numbers",
     [](Message& grant, Descriptor&) {
       grant.offset = 8;
       grant.bytes = UINT64_MAX;
     }},
    {"of memory that is smaller", [](Message&, Descriptor& file) { file = file_of(page_bytes / 2); }},
    {"of memory that is larger", [](Message&, Descriptor& file) { file = file_of(2 * page_bytes); }},
    {"of memory that can shrink",
     [](Message&, Descriptor& file) { file = file_of(page_bytes, F_SEAL_GROW | F_SEAL_SEAL); }},
    {"of memory that can be sealed against us",
     [](Message&, Descriptor& file) { file = file_of(page_bytes, F_SEAL_GROW | F_SEAL_SHRINK); }},
    {"of memory that cannot be written to",
     [](Message&, Descriptor& file) {
       file = file_of(page_bytes, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL);
     }},
    {"of what is no memory",
     [](Message&, Descriptor& file) { file = Descriptor(::open("/dev/zero", O_RDWR | O_CLOEXEC)); }},
    {"from another queue pair", [](Message& grant, Descriptor&) { grant.from = Qpn{0xEE0006}; }},
    {"to a queue pair that is not there", [](Message& grant, Descriptor&) { grant.to = Qpn{0xFFFFFFFF}; }},
    {"of addresses that no WRITE names", [](Message& grant, Descriptor&) { grant.address = UINT64_MAX - 7; }},
};

TEST_F(MadNeighbour, BadGrantsGiveNothing) {
  ASSERT_NO_FATAL_FAILURE(be_asked());
  for (const auto& [what, spoil] : bad_grants) {
    Message message = grant();
    Descriptor file = file_of(page_bytes);
    spoil(message, file);
    ASSERT_TRUE(neighbour_->say(message, file.get())) << what;
    EXPECT_TRUE(goes_by_the_ring()) << what;
  }
  // An honest one after all that is taken.
  auto memory = value_of(SharedMemory::create("test", page_bytes));
  ASSERT_TRUE(neighbour_->say(grant(), memory.descriptor()));
  ASSERT_EQ(write(5), PostResult::ok);
  EXPECT_EQ(first_word(memory), 5u);
  EXPECT_EQ(neighbour_->serve(), 0);
  EXPECT_TRUE(goes_by_the_ring(window + page_bytes - 4));
  EXPECT_TRUE(goes_by_the_ring(window - 1));
}

TEST_F(MadNeighbour, GrantsThatNobodyAskedForGiveNothing) {
  auto memory = value_of(SharedMemory::create("test", page_bytes));
  neighbour_->pair().gates[0].open.store(1);
  ASSERT_TRUE(neighbour_->say(grant(), memory.descriptor()));
  EXPECT_TRUE(goes_by_the_ring());
  EXPECT_EQ(first_word(memory), 0u);
}

TEST_F(MadNeighbour, ALaterGrantTakesThePlaceOfTheEarlier) {
  ASSERT_NO_FATAL_FAILURE(be_asked());
  auto large = value_of(SharedMemory::create("test", 16 * page_bytes));
  auto small = value_of(SharedMemory::create("test", page_bytes));
  Message message = grant();
  message.bytes = message.memory_bytes = 16 * page_bytes;
  ASSERT_TRUE(neighbour_->say(message, large.descriptor()));
  ASSERT_EQ(write(1, window + 8 * page_bytes), PostResult::ok);
  EXPECT_EQ(neighbour_->serve(), 0);
  ASSERT_TRUE(neighbour_->say(grant(), small.descriptor()));
  EXPECT_TRUE(goes_by_the_ring(window + 8 * page_bytes));
  ASSERT_EQ(write(2), PostResult::ok);
  EXPECT_EQ(first_word(small), 2u);
  EXPECT_EQ(first_word(large), 0u);
  // The gate says otherwise: what was granted counts no more, whatever the gate says later.
  neighbour_->pair().gates[0].open.store(9);
  EXPECT_TRUE(goes_by_the_ring());
  neighbour_->pair().gates[0].open.store(1);
  EXPECT_TRUE(goes_by_the_ring());
}

TEST_F(MadNeighbour, AnotherConnectionHasNoSayInThis) {
  ASSERT_NO_FATAL_FAILURE(be_asked());
  Neighbour stranger(*end_);
  auto memory = value_of(SharedMemory::create("test", page_bytes));
  ASSERT_TRUE(stranger.say(grant(), memory.descriptor()));
  EXPECT_TRUE(goes_by_the_ring());
  EXPECT_EQ(first_word(memory), 0u);
}

// ---- wants

class MadWants : public MadNeighbour {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(MadNeighbour::SetUp());
    memory_ = value_of(card_->allocate_memory(page_bytes));
    region_ = register_in(end_->domain(), full_access);
  }
  void TearDown() override {
    neighbour_.reset();
    for (const Key key : registered_) succeeds(card_->deregister_region(key));
    end_.reset();
    succeeds(card_->free_memory(memory_));
  }
  RegionKeys register_in(PdId domain, proto::Access access) {
    const auto keys = value_of(card_->register_region(domain, memory_, page_bytes,
                                                      reinterpret_cast<std::uintptr_t>(memory_), access));
    registered_.push_back(keys.lkey);
    return keys;
  }
  Message want(Key key) const {
    Message message = neighbour_->about(Kind::want);
    message.key = key;
    return message;
  }
  bool is_granted(const Message& want) {
    EXPECT_TRUE(neighbour_->say(want));
    return neighbour_->heard(Kind::grant).has_value();
  }

  void* memory_ = nullptr;
  RegionKeys region_;
  std::vector<Key> registered_;
};

TEST_F(MadWants, GetNothingThatIsNotTheirs) {
  const PdId other_domain = value_of(card_->create_domain());
  const Key elsewhere = register_in(other_domain, full_access).rkey;
  const Key read_only = register_in(end_->domain(), proto::Access::remote_read).rkey;
  EXPECT_FALSE(is_granted(want(elsewhere)));
  EXPECT_FALSE(is_granted(want(read_only)));
  EXPECT_FALSE(is_granted(want(end_->keys().rkey))) << "the program's own memory";
  EXPECT_FALSE(is_granted(want(Key{0}))) << "no key at all";
  EXPECT_FALSE(is_granted(want(Key{region_.rkey.value + 1}))) << "a key that might be the next";
  Message message = want(region_.rkey);
  message.from = Qpn{0xEE0006};
  EXPECT_FALSE(is_granted(message)) << "from a queue pair that is not connected with this one";
  message = want(region_.rkey);
  message.to = Qpn{message.to.value ^ 1};
  EXPECT_FALSE(is_granted(message)) << "to a queue pair that is not there";
  Neighbour stranger(*end_);
  ASSERT_TRUE(stranger.say(want(region_.rkey)));
  EXPECT_FALSE(stranger.heard(Kind::grant));
  EXPECT_FALSE(neighbour_->heard(Kind::grant));

  EXPECT_TRUE(is_granted(want(region_.rkey)));
  EXPECT_FALSE(is_granted(want(region_.rkey))) << "it has it already";
  for (const Key key : std::exchange(registered_, {})) succeeds(card_->deregister_region(key));
  succeeds(card_->destroy_domain(other_domain));
}

// Each permission may cost a wait for somebody who stays inside the gate.
TEST_F(MadWants, AreNotGrantedWithoutEnd) {
  int granted = 0;
  neighbour_->pair().gates[1].inside.store(1);
  for (int i = 0; i < 50; ++i) granted += is_granted(want(register_in(end_->domain(), full_access).rkey));
  EXPECT_GE(granted, 1);
  EXPECT_LE(granted, 10);
  EXPECT_TRUE(goes_by_the_ring());
}

TEST_F(MadWants, WhatIsNoMessageEndsTheConnection) {
  ASSERT_TRUE(is_granted(want(region_.rkey)));
  neighbour_->babble(local::message_bytes);
  ASSERT_EQ(end_->post(WrOpcode::write, 1, 0, 8), PostResult::ok);
  ASSERT_TRUE(until([&] { return end_->failed(); }, [&] { end_->poll(); }));
  EXPECT_EQ(end_->done.back().status, proto::WcStatus::retry_exceeded);
}

}  // namespace
}  // namespace beeline::nic::test
