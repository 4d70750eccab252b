#include "preload/files/next.h"

#include <dlfcn.h>

#include <array>
#include <atomic>

namespace beeline::preload::files {
namespace {

constexpr const char* names[] = {
#define BEELINE_NAME(name) #name,
    BEELINE_HOOKED_FUNCTIONS(BEELINE_NAME)
#undef BEELINE_NAME
};

// Constant initialisation: hooks run before constructors do.
constinit std::array<std::atomic<void*>, std::size(names)> addresses{};

}  // namespace

void* next(Function function) {
  const auto index = static_cast<std::size_t>(function);
  void* address = addresses[index].load(std::memory_order_acquire);
  if (address == nullptr) {
    address = ::dlsym(RTLD_NEXT, names[index]);
    addresses[index].store(address, std::memory_order_release);
  }
  return address;
}

void look_up_all() {
  for (std::size_t i = 0; i < std::size(names); ++i) next(static_cast<Function>(i));
}

}  // namespace beeline::preload::files
