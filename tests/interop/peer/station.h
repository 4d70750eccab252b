// One end of one case: a card opened once, and for every case fresh queue pairs with a
// slice of registered memory each, so that a case that breaks a queue pair harms no other.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "cases.h"
#include "control.h"
#include "verbs/verbs.h"

namespace beeline::interop {

// The card as opened.
struct Card {
  verbs::Provider* provider = nullptr;
  verbs::Context context;
  verbs::GidChoice gid;
  std::uint8_t port = 1;
  std::uint32_t mtu_bytes = 1024;  // the largest to be used here
};

// Anonymous memory that can be taken away while it is registered.
class Memory {
 public:
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  void unmap();  // the addresses stay unused: nothing else is mapped there by this program

 private:
  std::byte* data_;
  std::size_t bytes_;
};

// Where the messages of a slice lie, with a margin that nothing may touch after each.
struct Layout {
  std::vector<std::uint32_t> sizes;
  std::vector<std::size_t> offsets;
  std::size_t total = 0;
};
constexpr std::size_t margin_bytes = 64;
Layout lay_out(std::vector<std::uint32_t> sizes);

struct Remote {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  verbs::QpAddress qp;
};

struct Slice {
  std::unique_ptr<Memory> memory;
  verbs::MemoryRegion region;
  verbs::QueuePair qp;
  verbs::QpAddress self;
  Remote remote;
};

// Added to a key: the low byte is a serial number on some cards, a wrong index is no key at all on every one.
constexpr std::uint32_t wrong_key = 0x00155500;

class Station {
 public:
  // Queue pairs in RESET, memory registered and poisoned. `mtu_bytes` is what both ends have.
  static Result<Station> open(const Card& card, const Case& which, bool requester, std::uint32_t mtu_bytes);

  Json introduction() const;                 // what the peer needs to connect
  Result<void> connect(const Json& answer);  // with the peer's introduction

  Result<void> post_message(std::size_t slice, std::size_t message, std::uint32_t lkey_change = 0);
  Result<void> post_receive(std::size_t slice, std::size_t message, std::uint32_t bytes);
  // Waits for `count` completions; fewer only when the time is up.
  Result<std::vector<ibv_wc>> wait(std::size_t count, Duration patience);

  MutableBytes message(std::size_t slice, std::size_t message);
  void fill(bool from_requester);  // every message with its pattern
  // Empty when every message is as the pattern says (or wholly untouched) and every margin is untouched.
  std::string check_received(bool from_requester);
  std::string check_untouched();
  std::string check_margins();

  void destroy_queue_pairs();
  ibv_qp_state state(std::size_t slice);
  std::vector<Slice>& slices() { return slices_; }
  const Layout& layout() const { return layout_; }

 private:
  const Card* card_ = nullptr;
  const Case* case_ = nullptr;
  bool requester_ = false;
  Layout layout_;
  verbs::ProtectionDomain pd_;
  verbs::CompletionQueue cq_;
  std::vector<Slice> slices_;
};

// wr_id of a message of a slice, and back.
constexpr std::uint64_t work_id(std::size_t slice, std::size_t message) { return slice << 16 | message; }

}  // namespace beeline::interop
