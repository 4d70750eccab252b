// Registered memory made of vectors, for tests. Region addresses are invented, so that a
// trace does not depend on where the heap lies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
  };

  Region& add(Key key, PdId domain, std::uint64_t base, std::size_t size, Access access) {
    regions_.push_back({key, domain, base, access, false, std::vector<std::byte>(size)});
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

 private:
  static std::vector<std::byte>::iterator at(Region& region, std::uint64_t address) {
    return region.bytes.begin() + static_cast<std::ptrdiff_t>(address - region.base);
  }

  std::vector<Region> regions_;
};

}  // namespace beeline::proto::testing
