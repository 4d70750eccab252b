#include "nic/local/shared_allocations.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

namespace beeline::nic::local {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t most_bytes = std::size_t{1} << 30;

}  // namespace

Result<void*> SharedAllocations::allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > most_bytes)
    return fail(Errc::invalid_argument, "{} bytes of memory to share: 1 to {} are possible", bytes,
                most_bytes);
  bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  BEELINE_TRY(auto memory, SharedMemory::create("beeline-memory", bytes));
  // Now, because later it would be a signal in the middle of a store.
  if (const int error = ::posix_fallocate(memory.descriptor(), 0, static_cast<off_t>(bytes)); error != 0)
    return fail_errno(error, fmt::format("cannot get {} bytes of memory to share", bytes));
  void* const data = memory.data();
  const std::lock_guard lock(mutex_);
  allocations_.emplace(reinterpret_cast<std::uintptr_t>(data), Allocation{std::move(memory), bytes});
  return data;
}

Result<void> SharedAllocations::free(void* memory) {
  const std::lock_guard lock(mutex_);
  if (allocations_.erase(reinterpret_cast<std::uintptr_t>(memory)) == 0)
    return fail(Errc::not_found, "{} is no memory that the card has allocated", fmt::ptr(memory));
  return {};
}

std::optional<Shareable> SharedAllocations::share(PdId domain, Key key) {
  const std::lock_guard lock(mutex_);
  // Noted first: whoever takes the region away looks here afterwards.
  const bool fresh = shared_.insert(key.value).second;
  auto found = [&]() -> std::optional<Shareable> {
    const auto region = regions_.find_writable(domain, key);
    if (!region) return std::nullopt;
    const auto begin = reinterpret_cast<std::uintptr_t>(region->memory);
    auto allocation = allocations_.upper_bound(begin);
    if (allocation == allocations_.begin()) return std::nullopt;
    --allocation;
    const std::size_t offset = begin - allocation->first;
    const std::size_t all = allocation->second.bytes;
    if (offset >= all || region->bytes > all - offset) return std::nullopt;
    Descriptor file(::fcntl(allocation->second.memory.descriptor(), F_DUPFD_CLOEXEC, 0));
    if (!file) return std::nullopt;
    return Shareable{std::move(file), region->iova, offset, region->bytes, all};
  }();
  if (!found && fresh) shared_.erase(key.value);
  return found;
}

bool SharedAllocations::forget(Key key) {
  const std::lock_guard lock(mutex_);
  return shared_.erase(key.value) != 0;
}

void SharedAllocations::abandon_after_fork() {
  for (auto& [address, allocation] : allocations_) allocation.memory.abandon();
}

}  // namespace beeline::nic::local
