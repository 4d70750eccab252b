// What a test tells the fake libibverbs, through the symbol fake_ibverbs_settings.
#pragma once

#include "verbs/fake/fake_provider.h"

namespace beeline::verbs {

struct FakeLibrarySettings {
  FakeOptions fabric;
  int list_errno = 0;            // ibv_get_device_list fails with it
  int open_errno = 0;            // ibv_open_device
  bool prints_warnings = false;  // as the real one does when a driver is missing
  bool old_contexts = false;     // without verbs_context::query_port, as before rdma-core 16
  // What the library was asked for.
  int forks_prepared = 0;
  int optional_registrations = 0;  // ibv_reg_mr_iova2
};

// True starts anew: default settings, and a fabric that is made when devices are listed next.
using FakeLibrarySettingsFunction = FakeLibrarySettings* (*)(bool new_fabric);

}  // namespace beeline::verbs
