// The registered memory of this process: random keys to regions, and the protocol's view
// of it. Looking up, entering and leaving take no lock and allocate nothing; registering and
// deregistering take one.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"
#include "nic/gate.h"
#include "proto/types.h"

namespace beeline::nic {

struct Region {
  Gate gate;
  // Written while the gate is closed, read inside it.
  Key key;
  PdId domain;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::uint64_t iova = 0;  // the address that work requests and peers call `memory` by
  proto::Access access = proto::Access::none;
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
  explicit RegionTable(std::uint32_t max_regions);
  ~RegionTable() override;

  Result<Key> add(PdId domain, std::byte* memory, std::size_t bytes, std::uint64_t iova,
                  proto::Access access);
  // Returns when nobody copies to or from it any more. Nothing when there is no such key, else its domain.
  Result<PdId> remove(Key key);
  std::uint32_t size() const { return size_.load(std::memory_order_relaxed); }

  // Checks key, domain, bounds and rights, and stays inside the gate as long as `use` lives.
  proto::MemoryStatus enter(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                            proto::Access need, RegionUse& use);

  proto::MemoryStatus check(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                            proto::Access need) override;
  proto::MemoryStatus write(PdId domain, Key key, std::uint64_t address, Bytes data,
                            proto::Access need) override;
  proto::MemoryStatus read(PdId domain, Key key, std::uint64_t address, MutableBytes out,
                           proto::Access need) override;

 private:
  // A key picks one bucket; a key whose bucket is full is never given out. So a look-up reads
  // one cache line whatever a stranger asks for.
  static constexpr std::uint32_t bucket_entries = 8;
  struct alignas(64) Bucket {
    std::array<std::atomic<std::uint64_t>, bucket_entries> entries{};  // key << 32 | place + 1; 0: free
  };
  static constexpr std::uint32_t block_regions = 256;
  struct Block {
    std::array<Region, block_regions> regions;
  };

  Bucket& bucket_of(Key key) {
    return buckets_[key.value & (static_cast<std::uint32_t>(buckets_.size()) - 1)];
  }
  Region& region_at(std::uint32_t place);
  Region* find(Key key);
  std::atomic<std::uint64_t>* find_entry(Key key);
  std::atomic<std::uint64_t>* draw_key(Key& key);
  std::uint32_t take_place();

  std::mutex mutex_;  // registering and deregistering
  std::vector<Bucket> buckets_;
  std::vector<std::atomic<Block*>> blocks_;  // regions never move, and stay until the table goes
  std::vector<std::uint32_t> free_places_;
  std::uint32_t places_ = 0;  // in all blocks
  std::uint32_t max_regions_;
  std::atomic<std::uint32_t> size_{0};
};

}  // namespace beeline::nic
