#include "nic/region_table.h"

#include <bit>

#include "base/check.h"
#include "base/random.h"
#include "nic/guarded.h"

namespace beeline::nic {

using proto::Access;
using proto::MemoryStatus;

namespace {

// Half of the entries stay free, so that drawing a key rarely takes more than one try.
std::size_t bucket_count(std::uint32_t max_regions, std::uint32_t bucket_entries) {
  return std::bit_ceil(std::max<std::size_t>(1, std::size_t{max_regions} * 2 / bucket_entries));
}

// Without overflow, whatever address and length a peer sends.
bool in_bounds(const Region& region, std::uint64_t address, std::uint64_t length) {
  return address >= region.iova && length <= region.bytes && address - region.iova <= region.bytes - length;
}

Result<void> check_range(const std::byte* memory, std::size_t bytes, std::uint64_t iova) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (bytes == 0) return fail(Errc::invalid_argument, "a memory region of 0 bytes: register at least one");
  if (memory == nullptr || bytes - 1 > UINTPTR_MAX - address)
    return fail(Errc::invalid_argument, "memory region {}+{}: no such memory can exist", fmt::ptr(memory),
                bytes);
  if (bytes - 1 > UINT64_MAX - iova)
    return fail(Errc::invalid_argument, "memory region of {} bytes at iova {:#x} wraps around", bytes, iova);
  return {};
}

}  // namespace

RegionTable::RegionTable(std::uint32_t max_regions)
    : buckets_(bucket_count(max_regions, bucket_entries)),
      blocks_((max_regions + block_regions - 1) / block_regions),
      max_regions_(max_regions) {}

RegionTable::~RegionTable() {
  for (auto& block : blocks_) delete block.load(std::memory_order_relaxed);
}

Region& RegionTable::region_at(std::uint32_t place) {
  return blocks_[place / block_regions].load(std::memory_order_acquire)->regions[place % block_regions];
}

std::atomic<std::uint64_t>* RegionTable::find_entry(Key key) {
  for (auto& entry : bucket_of(key).entries) {
    const std::uint64_t value = entry.load(std::memory_order_acquire);
    if (value != 0 && static_cast<std::uint32_t>(value >> 32) == key.value) return &entry;
  }
  return nullptr;
}

Region* RegionTable::find(Key key) {
  const auto* entry = find_entry(key);
  if (entry == nullptr) return nullptr;
  const auto place_plus_one = static_cast<std::uint32_t>(entry->load(std::memory_order_acquire));
  return place_plus_one == 0 ? nullptr : &region_at(place_plus_one - 1);
}

// A key that is new and whose bucket has room; returns the free entry.
std::atomic<std::uint64_t>* RegionTable::draw_key(Key& key) {
  for (;;) {
    key = Key{static_cast<std::uint32_t>(secure_random())};
    // 0 and ~0 look like "no key" to many programs.
    if (key.value == 0 || key.value == UINT32_MAX || find_entry(key) != nullptr) continue;
    for (auto& entry : bucket_of(key).entries)
      if (entry.load(std::memory_order_relaxed) == 0) return &entry;
  }
}

std::uint32_t RegionTable::take_place() {
  if (free_places_.empty()) {
    blocks_[places_ / block_regions].store(new Block, std::memory_order_release);
    for (std::uint32_t i = block_regions; i-- > 0;) free_places_.push_back(places_ + i);
    places_ += block_regions;
  }
  const std::uint32_t place = free_places_.back();
  free_places_.pop_back();
  return place;
}

Result<Key> RegionTable::add(PdId domain, std::byte* memory, std::size_t bytes, std::uint64_t iova,
                             Access access) {
  BEELINE_TRY_VOID(check_range(memory, bytes, iova));
  // IBTA vol. 1, 10.6.3.1: remote write without local write is no valid combination.
  if (proto::allows(access, Access::remote_write) && !proto::allows(access, Access::local_write))
    return fail(Errc::invalid_argument, "remote write access to a region needs local write access too");
  const std::lock_guard lock(mutex_);
  if (size() >= max_regions_)
    return fail(Errc::resource_exhausted, "{} memory regions are registered, and that is the limit", size());
  Key key;
  auto* entry = draw_key(key);
  const std::uint32_t place = take_place();
  Region& region = region_at(place);
  region.key = key;
  region.domain = domain;
  region.memory = memory;
  region.bytes = bytes;
  region.iova = iova;
  region.access = access;
  region.gate.open();
  entry->store(std::uint64_t{key.value} << 32 | (place + 1), std::memory_order_release);
  size_.fetch_add(1, std::memory_order_relaxed);
  return key;
}

Result<PdId> RegionTable::remove(Key key) {
  const std::lock_guard lock(mutex_);
  auto* entry = find_entry(key);
  if (entry == nullptr) return fail(Errc::not_found, "no memory region has the key {:#010x}", key.value);
  const std::uint32_t place = static_cast<std::uint32_t>(entry->load(std::memory_order_relaxed)) - 1;
  entry->store(0, std::memory_order_release);
  Region& region = region_at(place);
  region.gate.close();
  const PdId domain = region.domain;
  free_places_.push_back(place);
  size_.fetch_sub(1, std::memory_order_relaxed);
  return domain;
}

MemoryStatus RegionTable::enter(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                                Access need, RegionUse& use) {
  Region* region = find(key);
  if (region == nullptr || !region->gate.enter()) return MemoryStatus::bad_key;
  RegionUse inside(region);
  // Between look-up and gate the place may have gone to another region.
  if (region->key != key) return MemoryStatus::bad_key;
  if (region->domain != domain) return MemoryStatus::wrong_domain;
  if (!in_bounds(*region, address, length)) return MemoryStatus::out_of_bounds;
  if (!proto::allows(region->access, need)) return MemoryStatus::no_permission;
  inside.point_to(region->memory + (address - region->iova));
  use = std::move(inside);
  return MemoryStatus::ok;
}

MemoryStatus RegionTable::check(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                                Access need) {
  if (length == 0) return MemoryStatus::ok;
  RegionUse use;
  return enter(domain, key, address, length, need, use);
}

MemoryStatus RegionTable::write(PdId domain, Key key, std::uint64_t address, Bytes data, Access need) {
  if (data.empty()) return MemoryStatus::ok;
  RegionUse use;
  if (const auto status = enter(domain, key, address, data.size(), need, use); status != MemoryStatus::ok)
    return status;
  return copy_guarded(use.bytes(), data.data(), data.size()) ? MemoryStatus::ok : MemoryStatus::fault;
}

MemoryStatus RegionTable::read(PdId domain, Key key, std::uint64_t address, MutableBytes out, Access need) {
  if (out.empty()) return MemoryStatus::ok;
  RegionUse use;
  if (const auto status = enter(domain, key, address, out.size(), need, use); status != MemoryStatus::ok)
    return status;
  return copy_guarded(out.data(), use.bytes(), out.size()) ? MemoryStatus::ok : MemoryStatus::fault;
}

}  // namespace beeline::nic
