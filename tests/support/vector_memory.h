// Registered memory for tests: a few vectors with a key, an address and rights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "proto/types.h"

namespace beeline::test {

class VectorMemory final : public proto::Memory {
 public:
  struct Region {
    PdId domain;
    Key key;
    std::uint64_t address = 0;
    std::vector<std::byte> bytes;
    proto::Access access = proto::Access::none;
    bool can_be_invalidated = false;
    bool invalid = false;
  };

  void add(Region region) { regions_.push_back(std::move(region)); }

  // nullptr when there is no region of this key.
  Region* find(Key key) {
    const auto found = std::find_if(regions_.begin(), regions_.end(),
                                    [&](const Region& region) { return region.key == key; });
    return found == regions_.end() ? nullptr : &*found;
  }

  proto::MemoryStatus check(PdId domain, Key key, std::uint64_t address, std::uint64_t length,
                            proto::Access need) override {
    if (length == 0) return proto::MemoryStatus::ok;
    const Region* region = find(key);
    if (region == nullptr || region->invalid) return proto::MemoryStatus::bad_key;
    if (region->domain != domain) return proto::MemoryStatus::wrong_domain;
    if (!proto::allows(region->access, need)) return proto::MemoryStatus::no_permission;
    const std::uint64_t offset = address - region->address;  // wraps for an address in front of the region
    if (offset > region->bytes.size() || length > region->bytes.size() - offset)
      return proto::MemoryStatus::out_of_bounds;
    return proto::MemoryStatus::ok;
  }

  proto::MemoryStatus write(PdId domain, Key key, std::uint64_t address, Bytes data,
                            proto::Access need) override {
    const auto status = check(domain, key, address, data.size(), need);
    if (status == proto::MemoryStatus::ok && !data.empty())
      std::copy(data.begin(), data.end(), at(key, address));
    return status;
  }

  proto::MemoryStatus read(PdId domain, Key key, std::uint64_t address, MutableBytes out,
                           proto::Access need) override {
    const auto status = check(domain, key, address, out.size(), need);
    if (status == proto::MemoryStatus::ok && !out.empty())
      std::copy_n(at(key, address), out.size(), out.begin());
    return status;
  }

  proto::MemoryStatus atomic(PdId domain, Key key, std::uint64_t address, proto::AtomicOp operation,
                             std::uint64_t compare, std::uint64_t swap_or_add,
                             std::uint64_t& before) override {
    const auto status = check(domain, key, address, sizeof before, proto::Access::remote_atomic);
    if (status != proto::MemoryStatus::ok) return status;
    std::memcpy(&before, &*at(key, address), sizeof before);
    std::uint64_t after = before + swap_or_add;
    if (operation == proto::AtomicOp::compare_swap) after = before == compare ? swap_or_add : before;
    std::memcpy(&*at(key, address), &after, sizeof after);
    return proto::MemoryStatus::ok;
  }

  proto::MemoryStatus invalidate(PdId domain, Qpn, Key key) override {
    Region* region = find(key);
    if (region == nullptr || region->invalid) return proto::MemoryStatus::bad_key;
    if (region->domain != domain) return proto::MemoryStatus::wrong_domain;
    if (!region->can_be_invalidated) return proto::MemoryStatus::no_permission;
    region->invalid = true;
    return proto::MemoryStatus::ok;
  }

 private:
  std::vector<std::byte>::iterator at(Key key, std::uint64_t address) {
    Region& region = *find(key);
    return region.bytes.begin() + static_cast<std::ptrdiff_t>(address - region.address);
  }

  std::vector<Region> regions_;
};

}  // namespace beeline::test
