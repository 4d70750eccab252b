// Registered memory made of vectors, for tests. Region addresses are invented, so that a
// trace does not depend on where the heap lies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "proto/types.h"

namespace beeline::proto::testing {

class TestMemory final : public Memory {
 public:
  struct Region {
    Key key{};
    PdId domain{};
    std::uint64_t base = 0;
    Access access = Access::none;
    bool faulty = false;  // reading and writing fails although the checks pass
    std::vector<std::byte> bytes;
    std::optional<Qpn> user;  // nobody else may use the key
  };

  Region& add(Key key, PdId domain, std::uint64_t base, std::size_t size, Access access) {
    regions_.push_back({key, domain, base, access, false, std::vector<std::byte>(size), {}});
    return regions_.back();
  }
  void remove(Key key) {
    std::erase_if(regions_, [key](const Region& region) { return region.key == key; });
  }
  Region* find(Key key) {
    const auto it =
        std::find_if(regions_.begin(), regions_.end(), [key](const Region& r) { return r.key == key; });
    return it == regions_.end() ? nullptr : &*it;
  }

  MemoryStatus check(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                     Access need) override {
    const Region* region = find(key);
    if (region == nullptr) return MemoryStatus::bad_key;
    if (region->domain != domain) return MemoryStatus::wrong_domain;
    if (!allows(region->access, need)) return MemoryStatus::no_permission;
    if (address < region->base || address - region->base > region->bytes.size() ||
        length > region->bytes.size() - (address - region->base))
      return MemoryStatus::out_of_bounds;
    return MemoryStatus::ok;
  }
  MemoryStatus write(PdId domain, Key key, std::uint64_t address, Bytes data, Access need) override {
    const MemoryStatus status = check(domain, key, address, data.size(), need);
    if (status != MemoryStatus::ok) return status;
    Region& region = *find(key);
    if (region.faulty) return MemoryStatus::fault;
    std::copy(data.begin(), data.end(), at(region, address));
    return MemoryStatus::ok;
  }
  MemoryStatus read(PdId domain, Key key, std::uint64_t address, MutableBytes out, Access need) override {
    const MemoryStatus status = check(domain, key, address, out.size(), need);
    if (status != MemoryStatus::ok) return status;
    Region& region = *find(key);
    if (region.faulty) return MemoryStatus::fault;
    std::copy_n(at(region, address), out.size(), out.begin());
    return MemoryStatus::ok;
  }

  MemoryStatus fill(PdId domain, Key key, std::uint64_t address, std::uint64_t length, Access need,
                    ByteSource& source) override {
    const MemoryStatus status = check(domain, key, address, length, need);
    if (status != MemoryStatus::ok) return status;
    Region& region = *find(key);
    if (region.faulty) return MemoryStatus::fault;
    const MutableBytes place = std::span(region.bytes).subspan(address - region.base, length);
    return source.fetch(place) ? MemoryStatus::ok : MemoryStatus::fault;
  }
  MemoryStatus locate(PdId domain, Key key, std::uint64_t address, std::uint64_t length, Access need,
                      std::uint64_t& where) override {
    const MemoryStatus status = check(domain, key, address, length, need);
    if (status != MemoryStatus::ok) return status;
    where = reinterpret_cast<std::uintptr_t>(find(key)->bytes.data() + (address - find(key)->base));
    return MemoryStatus::ok;
  }

  MemoryStatus atomic(PdId domain, Key key, std::uint64_t address, AtomicOp operation, std::uint64_t compare,
                      std::uint64_t swap_or_add, std::uint64_t& before) override {
    const MemoryStatus status = check(domain, key, address, sizeof before, Access::remote_atomic);
    if (status != MemoryStatus::ok) return status;
    Region& region = *find(key);
    if (region.faulty) return MemoryStatus::fault;
    std::memcpy(&before, &*at(region, address), sizeof before);
    std::uint64_t after = before + swap_or_add;
    if (operation == AtomicOp::compare_swap) after = before == compare ? swap_or_add : before;
    std::memcpy(&*at(region, address), &after, sizeof after);
    return MemoryStatus::ok;
  }
  MemoryStatus check_user(Key key, Qpn qpn) override {
    const Region* region = find(key);
    return region == nullptr || !region->user || region->user == qpn ? MemoryStatus::ok
                                                                     : MemoryStatus::no_permission;
  }
  MemoryStatus invalidate(PdId domain, Qpn qpn, Key key) override {
    const Region* region = find(key);
    if (region == nullptr) return MemoryStatus::bad_key;
    if (region->domain != domain) return MemoryStatus::wrong_domain;
    if (check_user(key, qpn) != MemoryStatus::ok) return MemoryStatus::no_permission;
    remove(key);
    return MemoryStatus::ok;
  }
  // A window here is a region of its own, as long as it is asked to be.
  MemoryStatus bind(PdId domain, Qpn qpn, const WindowBind& bind) override {
    const MemoryStatus status = check(domain, bind.region, bind.address, bind.length, Access::window_bind);
    if (status != MemoryStatus::ok) return status;
    remove(bind.window);
    add(bind.new_rkey, domain, bind.address, bind.length, Access{bind.access}).user = qpn;
    return MemoryStatus::ok;
  }

 private:
  static std::vector<std::byte>::iterator at(Region& region, std::uint64_t address) {
    return region.bytes.begin() + static_cast<std::ptrdiff_t>(address - region.base);
  }

  std::vector<Region> regions_;
};

}  // namespace beeline::proto::testing
