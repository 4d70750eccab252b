// The registered memory of this process: random keys to regions and memory windows, and the
// protocol's view of both. Looking up, entering and leaving take no lock and allocate nothing;
// everything else takes one.
//
// Lock order: the table's mutex is the last one, below queue pairs and the engine. Nobody waits under it
// for the gate of a region, which a batch of outgoing packets may hold; only for that of a window, which
// nobody keeps longer than a copy takes.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"
#include "nic/card.h"
#include "nic/gate.h"
#include "nic/key_table.h"
#include "proto/types.h"

namespace beeline::nic {

// A region, or a window on one (IBTA vol. 1, 10.6.7): the same to whoever asks with a key.
struct alignas(64) Region {
  enum class Kind : std::uint8_t { region, window_1, window_2 };

  Gate gate;  // of a window: open while it is bound
  // Written while the gate is closed, read inside it.
  Key key;
  PdId domain;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::uint64_t iova = 0;  // the address that work requests and peers call `memory` by
  proto::Access access = proto::Access::none;
  Kind kind = Kind::region;
  Qpn owner{};  // of a bound type 2 window: who bound it
  // Under the table's mutex.
  bool busy = false;          // a region that is being changed or taken away
  std::uint32_t windows = 0;  // bound to this region
  Region* under = nullptr;    // of a bound window
};

// Being inside a region's gate, and the bytes that this was asked for.
class RegionUse {
 public:
  RegionUse() = default;
  explicit RegionUse(Region* entered) : region_(entered) {}
  RegionUse(RegionUse&& other) noexcept
      : region_(std::exchange(other.region_, nullptr)), bytes_(std::exchange(other.bytes_, nullptr)) {}
  RegionUse& operator=(RegionUse&& other) noexcept {
    if (this != &other) {
      release();
      region_ = std::exchange(other.region_, nullptr);
      bytes_ = std::exchange(other.bytes_, nullptr);
    }
    return *this;
  }
  ~RegionUse() { release(); }

  void point_to(std::byte* bytes) { bytes_ = bytes; }
  std::byte* bytes() const { return bytes_; }
  const Region* region() const { return region_; }
  void release() {
    if (region_ != nullptr) region_->gate.leave();
    region_ = nullptr;
  }

 private:
  Region* region_ = nullptr;
  std::byte* bytes_ = nullptr;
};

class RegionTable final : public proto::Memory {
 public:
  RegionTable(std::uint32_t max_regions, std::uint32_t max_windows);
  ~RegionTable() override;

  Result<Key> add(PdId domain, std::byte* memory, std::size_t bytes, std::uint64_t iova,
                  proto::Access access);
  // Returns when nobody copies to or from it any more. Nothing when there is no such key, else its domain.
  Result<PdId> remove(Key key);
  // Returns when nobody copies by the old rules any more; the domain that it had.
  Result<PdId> change(Key key, const RegionChange& change);
  // What a peer of this domain may write to by this key, if it is a region's.
  struct Place {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::uint64_t iova = 0;
  };
  std::optional<Place> find_writable(PdId domain, Key key);
  std::uint32_t size() const { return size_.load(std::memory_order_relaxed); }

  Result<Key> add_window(PdId domain, WindowType type);
  // By any key of its family; the domain that it had.
  Result<PdId> remove_window(Key key);
  // A queue pair goes: what it has bound is bound no longer.
  void unbind_windows_of(Qpn qpn);

  // Checks key, domain, bounds and rights, and stays inside the gate as long as `use` lives. What a window
  // let in holds the region under it, so that invalidating the window waits for no outgoing packet.
  proto::MemoryStatus enter(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                            proto::Access need, RegionUse& use);

  proto::MemoryStatus check(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                            proto::Access need) override;
  proto::MemoryStatus write(PdId domain, Key key, std::uint64_t address, Bytes data,
                            proto::Access need) override;
  proto::MemoryStatus read(PdId domain, Key key, std::uint64_t address, MutableBytes out,
                           proto::Access need) override;
  proto::MemoryStatus fill(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                           proto::Access need, proto::ByteSource& source) override;
  proto::MemoryStatus locate(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                             proto::Access need, std::uint64_t& where) override;
  proto::MemoryStatus atomic(PdId domain, Key key, std::uint64_t address, proto::AtomicOp op,
                             std::uint64_t compare, std::uint64_t swap_or_add,
                             std::uint64_t& before) override;
  proto::MemoryStatus check_user(Key key, Qpn qpn) override;
  proto::MemoryStatus invalidate(PdId domain, Qpn qpn, Key key) override;
  proto::MemoryStatus bind(PdId domain, Qpn qpn, const proto::WindowBind& bind) override;

 private:
  static constexpr std::uint32_t block_regions = 256;
  struct Block {
    std::array<Region, block_regions> regions;
  };
  // What the key table holds: the place, counted from 1, and whether it is a window's.
  static constexpr std::uint32_t window_bit = 1u << 31;

  Region& region_at(std::uint32_t place) const {
    const std::uint32_t index = (place & ~window_bit) - 1;
    return blocks_[index / block_regions].load(std::memory_order_acquire)->regions[index % block_regions];
  }
  static bool is_window(std::uint32_t place) { return (place & window_bit) != 0; }

  proto::MemoryStatus enter_briefly(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                                    proto::Access need, RegionUse& use);
  Result<KeyTable::Entry*> find_region(Key key);
  std::uint32_t take_place();
  void give_back_place(std::uint32_t place);
  void unbind(Region& window);

  std::mutex mutex_;  // registering, binding and their opposites
  KeyTable keys_;
  std::vector<std::atomic<Block*>> blocks_;  // regions never move, and stay until the table goes
  std::vector<std::uint32_t> free_places_;
  std::uint32_t places_ = 0;  // in all blocks
  const std::uint32_t max_regions_;
  const std::uint32_t max_windows_;
  std::atomic<std::uint32_t> size_{0};  // regions
  std::uint32_t windows_ = 0;
  std::atomic<std::uint32_t> type_2_windows_{0};  // nobody need be asked who uses a key while there is none
};

}  // namespace beeline::nic
