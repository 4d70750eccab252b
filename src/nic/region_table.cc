#include "nic/region_table.h"

#include "base/check.h"
#include "nic/guarded.h"

namespace beeline::nic {

using proto::Access;
using proto::MemoryStatus;

namespace {

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

// IBTA vol. 1, 10.6.3.1: remote write or atomics without local write are no valid combination.
Result<void> check_rights(Access access) {
  const bool writes =
      proto::allows(access, Access::remote_write) || proto::allows(access, Access::remote_atomic);
  if (writes && !proto::allows(access, Access::local_write))
    return fail(Errc::invalid_argument,
                "remote write or atomic access to a region needs local write access too");
  return {};
}

// What comes from outside asks for one of these; nothing of this side does.
bool is_remote(Access need) {
  return proto::allows(need, Access::remote_write) || proto::allows(need, Access::remote_read) ||
         proto::allows(need, Access::remote_atomic);
}

// The last word of a short piece lands after all that is before it, so that whoever waits for it may read
// the rest (verbs/provider.h, writes_last_word_last).
bool write_guarded(std::byte* to, Bytes data) {
  constexpr std::size_t word_bytes = 8, short_bytes = 4096;
  if (data.size() <= word_bytes || data.size() > short_bytes)
    return copy_guarded(to, data.data(), data.size());
  const std::size_t before = data.size() - word_bytes;
  if (!copy_guarded(to, data.data(), before)) return false;
  std::atomic_thread_fence(std::memory_order_release);
  return copy_guarded(to + before, data.data() + before, word_bytes);
}

}  // namespace

RegionTable::RegionTable(std::uint32_t max_regions, std::uint32_t max_windows)
    : keys_(max_regions + max_windows),
      blocks_((max_regions + max_windows + block_regions - 1) / block_regions),
      max_regions_(max_regions),
      max_windows_(max_windows) {}

RegionTable::~RegionTable() {
  for (auto& block : blocks_) delete block.load(std::memory_order_relaxed);
}

std::uint32_t RegionTable::take_place() {
  if (free_places_.empty()) {
    blocks_[places_ / block_regions].store(new Block, std::memory_order_release);
    for (std::uint32_t i = block_regions; i-- > 0;) free_places_.push_back(places_ + i + 1);
    places_ += block_regions;
  }
  const std::uint32_t place = free_places_.back();
  free_places_.pop_back();
  return place;
}

void RegionTable::give_back_place(std::uint32_t place) { free_places_.push_back(place & ~window_bit); }

Result<KeyTable::Entry*> RegionTable::find_region(Key key) {
  KeyTable::Entry* entry = keys_.find_family(key);
  if (entry == nullptr || entry->key() != key || is_window(entry->place()))
    return fail(Errc::not_found, "no memory region has the key {:#010x}", key.value);
  const Region& region = region_at(entry->place());
  if (region.busy) return fail(Errc::in_use, "memory region {:#010x} is being changed", key.value);
  if (region.windows > 0)
    return fail(Errc::in_use, "memory region {:#010x} has {} windows bound: unbind those first", key.value,
                region.windows);
  return entry;
}

Result<Key> RegionTable::add(PdId domain, std::byte* memory, std::size_t bytes, std::uint64_t iova,
                             Access access) {
  if (proto::allows(access, Access::zero_based)) iova = 0;
  BEELINE_TRY_VOID(check_range(memory, bytes, iova));
  BEELINE_TRY_VOID(check_rights(access));
  const std::lock_guard lock(mutex_);
  if (size() >= max_regions_)
    return fail(Errc::resource_exhausted, "{} memory regions are registered, and that is the limit", size());
  Key key;
  auto* entry = keys_.draw(key);
  const std::uint32_t place = take_place();
  Region& region = region_at(place);
  region.kind = Region::Kind::region;
  region.key = key;
  region.domain = domain;
  region.memory = memory;
  region.bytes = bytes;
  region.iova = iova;
  region.access = access;
  region.gate.open();
  entry->set(key, place);
  size_.fetch_add(1, std::memory_order_relaxed);
  return key;
}

// The key goes first. Then it takes as long as it takes until everybody has left, without the lock.
Result<PdId> RegionTable::remove(Key key) {
  std::unique_lock lock(mutex_);
  BEELINE_TRY(auto* entry, find_region(key));
  const std::uint32_t place = entry->place();
  Region& region = region_at(place);
  region.busy = true;
  entry->clear();
  lock.unlock();
  region.gate.close();
  lock.lock();
  region.busy = false;
  give_back_place(place);
  size_.fetch_sub(1, std::memory_order_relaxed);
  return region.domain;
}

Result<PdId> RegionTable::change(Key key, const RegionChange& change) {
  std::unique_lock lock(mutex_);
  BEELINE_TRY(auto* entry, find_region(key));
  Region& region = region_at(entry->place());
  const Access access = change.access.value_or(region.access);
  RegionChange::Range range =
      change.range.value_or(RegionChange::Range{region.memory, region.bytes, region.iova});
  if (proto::allows(access, Access::zero_based)) range.iova = 0;
  BEELINE_TRY_VOID(check_range(static_cast<std::byte*>(range.address), range.bytes, range.iova));
  BEELINE_TRY_VOID(check_rights(access));
  region.busy = true;
  lock.unlock();
  region.gate.close();
  lock.lock();
  const PdId before = region.domain;
  region.domain = change.domain.value_or(before);
  region.memory = static_cast<std::byte*>(range.address);
  region.bytes = range.bytes;
  region.iova = range.iova;
  region.access = access;
  region.busy = false;
  region.gate.open();
  return before;
}

std::optional<RegionTable::Place> RegionTable::find_writable(PdId domain, Key key) {
  const std::lock_guard lock(mutex_);
  const auto entry = find_region(key);
  if (!entry) return std::nullopt;
  const Region& region = region_at((*entry)->place());
  if (region.domain != domain || !proto::allows(region.access, Access::remote_write)) return std::nullopt;
  return Place{region.memory, region.bytes, region.iova};
}

MemoryStatus RegionTable::enter_briefly(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                                        Access need, RegionUse& use) {
  const std::uint32_t place = keys_.find(key);
  if (place == 0) return MemoryStatus::bad_key;
  Region& region = region_at(place);
  if (!region.gate.enter()) return MemoryStatus::bad_key;
  RegionUse inside(&region);
  // Between look-up and gate the place may have gone to another region.
  if (region.key != key) return MemoryStatus::bad_key;
  if (region.domain != domain) return MemoryStatus::wrong_domain;
  if (!in_bounds(region, address, length)) return MemoryStatus::out_of_bounds;
  if (!proto::allows(region.access, need)) return MemoryStatus::no_permission;
  // A window's key is no L_Key.
  if (is_window(place) && !is_remote(need)) return MemoryStatus::bad_key;
  inside.point_to(region.memory + (address - region.iova));
  use = std::move(inside);
  return MemoryStatus::ok;
}

MemoryStatus RegionTable::enter(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                                Access need, RegionUse& use) {
  const auto status = enter_briefly(domain, key, address, length, need, use);
  if (status != MemoryStatus::ok || use.region()->under == nullptr) return status;
  // Open as long as somebody is inside a window that is bound to it.
  BEELINE_CHECK(use.region()->under->gate.enter());
  RegionUse below(use.region()->under);
  below.point_to(use.bytes());
  use = std::move(below);
  return status;
}

MemoryStatus RegionTable::check(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                                Access need) {
  if (length == 0) return MemoryStatus::ok;
  RegionUse use;
  return enter_briefly(domain, key, address, length, need, use);
}

MemoryStatus RegionTable::write(PdId domain, Key key, std::uint64_t address, Bytes data, Access need) {
  if (data.empty()) return MemoryStatus::ok;
  RegionUse use;
  if (const auto status = enter_briefly(domain, key, address, data.size(), need, use);
      status != MemoryStatus::ok)
    return status;
  return write_guarded(use.bytes(), data) ? MemoryStatus::ok : MemoryStatus::fault;
}

MemoryStatus RegionTable::read(PdId domain, Key key, std::uint64_t address, MutableBytes out, Access need) {
  if (out.empty()) return MemoryStatus::ok;
  RegionUse use;
  if (const auto status = enter_briefly(domain, key, address, out.size(), need, use);
      status != MemoryStatus::ok)
    return status;
  return copy_guarded(out.data(), use.bytes(), out.size()) ? MemoryStatus::ok : MemoryStatus::fault;
}

// Inside the gate as long as the source copies: deregistration waits for it.
MemoryStatus RegionTable::fill(PdId domain, Key key, std::uint64_t address, std::uint64_t length, Access need,
                               proto::ByteSource& source) {
  if (length == 0) return MemoryStatus::ok;
  RegionUse use;
  if (const auto status = enter_briefly(domain, key, address, length, need, use); status != MemoryStatus::ok)
    return status;
  return source.fetch({use.bytes(), length}) ? MemoryStatus::ok : MemoryStatus::fault;
}

MemoryStatus RegionTable::locate(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                                 Access need, std::uint64_t& where) {
  RegionUse use;
  const auto status = enter_briefly(domain, key, address, length, need, use);
  if (status == MemoryStatus::ok) where = reinterpret_cast<std::uintptr_t>(use.bytes());
  return status;
}

MemoryStatus RegionTable::atomic(PdId domain, Key key, std::uint64_t address, proto::AtomicOp op,
                                 std::uint64_t compare, std::uint64_t swap_or_add, std::uint64_t& before) {
  RegionUse use;
  if (const auto status =
          enter_briefly(domain, key, address, sizeof(std::uint64_t), Access::remote_atomic, use);
      status != MemoryStatus::ok)
    return status;
  // The address that the peer named is a multiple of 8; where it lies need not be.
  if (reinterpret_cast<std::uintptr_t>(use.bytes()) % sizeof(std::uint64_t) != 0)
    return MemoryStatus::no_permission;
  const bool done = op == proto::AtomicOp::compare_swap
                        ? compare_swap_guarded(use.bytes(), compare, swap_or_add, before)
                        : fetch_add_guarded(use.bytes(), swap_or_add, before);
  return done ? MemoryStatus::ok : MemoryStatus::fault;
}

}  // namespace beeline::nic
