#include "preload/verbs/real.h"

#include <dlfcn.h>

#include <cstring>

namespace beeline::preload {
namespace {

template <class Function>
void look_up(void* library, const char* name, const char* version, Function& out) {
  void* symbol = version != nullptr ? ::dlvsym(library, name, version) : ::dlsym(library, name);
  std::memcpy(&out, &symbol, sizeof symbol);
}

RealFunctions load() {
  RealFunctions functions;
  // Loaded with us: we need it. The dlopen hook leaves our own calls alone.
  void* library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return functions;
#define BEELINE_LOOK_UP(name, version) look_up(library, #name, version, functions.name);
  BEELINE_REAL_FUNCTIONS(BEELINE_LOOK_UP)
#undef BEELINE_LOOK_UP
  return functions;
}

}  // namespace

const RealFunctions& real_functions() {
  static const RealFunctions functions = load();
  return functions;
}

void RealDevices::add(const ibv_device* device) {
  const std::lock_guard guard(lock_);
  devices_.insert(device);
  any_.store(true, std::memory_order_release);
}

bool RealDevices::has(const ibv_device* device) const {
  if (!any()) return false;
  const std::lock_guard guard(lock_);
  return devices_.count(device) != 0;
}

// Never destroyed: programs call verbs while they end.
RealDevices& real_devices() {
  static RealDevices* const devices = new RealDevices;
  return *devices;
}

}  // namespace beeline::preload
