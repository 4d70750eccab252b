// The settings of a fake library, from outside.
#pragma once

#include <dlfcn.h>

#include <stdexcept>

#include "verbs/system/fake_library/fake_ibverbs.h"

namespace beeline::verbs {

// A new fabric, with settings as they are by default. `path` as the test program knows it.
inline FakeLibrarySettings& fresh_fake_library(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  return *reinterpret_cast<FakeLibrarySettingsFunction>(dlsym(handle, "fake_ibverbs_settings"))(true);
}

}  // namespace beeline::verbs
