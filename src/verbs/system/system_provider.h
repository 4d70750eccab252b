// The machine's RDMA devices (hardware, or the kernel's rdma_rxe) through its own libibverbs.
#pragma once

#include <memory>
#include <string>

#include "verbs/provider.h"

namespace beeline::verbs {

struct SystemOptions {
  std::string library = "libibverbs.so.1";
  // The library is loaded when this holds an entry, as it does where there is a device.
  std::string class_directory = "/sys/class/infiniband";
};

// Loads nothing yet. Without a device the list is empty; where there is one but the library is
// missing or too old, get_device_list fails and why() says what to install.
std::unique_ptr<Provider> make_system_provider(SystemOptions options = {});

}  // namespace beeline::verbs
