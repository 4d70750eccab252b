#include "preload/verbs/devices.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/log.h"
#include "preload/export.h"
#include "preload/files/bypass.h"
#include "preload/verbs/route.h"

namespace beeline::preload {
namespace {

// What the library of the machine says; empty and errno when it has nothing to say.
std::vector<ibv_device*> real_list(ibv_device**& raw) {
  std::vector<ibv_device*> devices;
  const auto list = real_functions().ibv_get_device_list;
  if (list == nullptr) return devices;
  int count = 0;
  {
    const files::Bypass bypass;  // it looks at the machine's files, not at ours
    raw = list(&count);
  }
  if (raw == nullptr) return devices;
  devices.assign(raw, raw + count);
  for (const ibv_device* device : devices) real_devices().add(device);
  return devices;
}

void complain_once(const Error& error) {
  static std::once_flag once;
  std::call_once(once, [&] { logger()->error("no software card: {}", error.message); });
}

}  // namespace

ibv_device** DeviceLists::make(int* count) {
  std::vector<ibv_device*> all;
  std::vector<Part> parts;
  const auto running = engine();
  verbs::FullProvider* provider = running ? running->provider : nullptr;
  if (!running) complain_once(running.error());
  if (!running || running->machine_devices) {
    Part part;
    all = real_list(part.devices);
    if (part.devices != nullptr) parts.push_back(part);
  }
  if (provider != nullptr) {
    int own = 0;
    if (ibv_device** list = provider->get_device_list(&own); list != nullptr) {
      all.insert(all.end(), list, list + own);
      parts.push_back({list, provider});
      const std::lock_guard guard(lock_);
      for (int i = 0; i < own; ++i) seen_[list[i]] = provider;
    }
  }
  if (count != nullptr) *count = static_cast<int>(all.size());
  if (parts.empty()) return refuse<ibv_device**>(ENOSYS);
  auto merged = std::make_unique<ibv_device*[]>(all.size() + 1);
  std::copy(all.begin(), all.end(), merged.get());
  const std::lock_guard guard(lock_);
  lists_[merged.get()] = std::move(parts);
  return merged.release();
}

void DeviceLists::free(ibv_device** list) {
  std::vector<Part> parts;
  {
    const std::lock_guard guard(lock_);
    const auto found = lists_.find(list);
    if (found == lists_.end()) return;
    parts = std::move(found->second);
    lists_.erase(found);
  }
  for (const Part& part : parts) {
    // A list of a parent's provider stays as it is: that provider is gone.
    if (part.provider == nullptr)
      real_functions().ibv_free_device_list(part.devices);
    else if (part.provider == engine_if_any().provider)
      part.provider->free_device_list(part.devices);
  }
  delete[] list;
}

ibv_device* DeviceLists::resolve(ibv_device* device) {
  verbs::FullProvider* from = nullptr;
  {
    const std::lock_guard guard(lock_);
    const auto found = seen_.find(device);
    if (found == seen_.end()) return nullptr;
    from = found->second;
  }
  const auto running = engine();
  verbs::FullProvider* now = running ? running->provider : nullptr;
  if (now == nullptr || now == from) return now == nullptr ? nullptr : device;
  ibv_device* same = nullptr;
  ibv_device** list = now->get_device_list(nullptr);
  for (ibv_device** one = list; one != nullptr && *one != nullptr; ++one)
    if (std::strcmp((*one)->name, device->name) == 0) same = *one;
  if (list != nullptr) now->free_device_list(list);
  return same;
}

// Never destroyed: programs call verbs while they end.
DeviceLists& device_lists() {
  static DeviceLists* const lists = new DeviceLists;
  return *lists;
}

namespace {

// The call about a device, which is ours, the real library's, or nobody's.
template <auto ours, auto theirs, class R>
R about(ibv_device* device, R unknown) {
  if (ibv_device* mine = device_lists().resolve(device); mine != nullptr)
    return (engine_if_any().provider->*ours)(mine);
  if (real_devices().has(device) && real_functions().*theirs != nullptr)
    return (real_functions().*theirs)(device);
  errno = EINVAL;
  return unknown;
}

// The card's contexts have /dev/null as their command descriptor: nothing to import.
bool is_ours(int cmd_fd) {
  struct stat status {};
  return ::fstat(cmd_fd, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
}

}  // namespace
}  // namespace beeline::preload

using beeline::verbs::FullProvider;
using Real = beeline::preload::RealFunctions;
using namespace beeline::preload;

extern "C" {

BEELINE_EXPORT ibv_device** ibv_get_device_list(int* count) { return device_lists().make(count); }
BEELINE_EXPORT void ibv_free_device_list(ibv_device** list) { device_lists().free(list); }

BEELINE_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  return about<&FullProvider::get_device_name, &Real::ibv_get_device_name, const char*>(device, nullptr);
}
BEELINE_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  return about<&FullProvider::get_device_guid, &Real::ibv_get_device_guid, __be64>(device, 0);
}
BEELINE_EXPORT int ibv_get_device_index(ibv_device* device) {
  return about<&FullProvider::get_device_index, &Real::ibv_get_device_index, int>(device, -1);
}
BEELINE_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  return about<&FullProvider::open_device, &Real::ibv_open_device, ibv_context*>(device, nullptr);
}
BEELINE_EXPORT int ibv_close_device(ibv_context* context) {
  return route<&FullProvider::close_device_with_all, &Real::ibv_close_device>(context);
}
BEELINE_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  if (is_ours(cmd_fd) || real_functions().ibv_import_device == nullptr)
    return refuse<ibv_context*>(EOPNOTSUPP);
  ibv_context* context = real_functions().ibv_import_device(cmd_fd);
  if (context != nullptr) real_devices().add(context->device);
  return context;
}

BEELINE_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  return route<&FullProvider::query_device, &Real::ibv_query_device>(context, attr);
}

// Programs of today reach the whole structure through the context; this is for old ones, which know its
// first 48 bytes (_compat_ibv_port_attr).
BEELINE_EXPORT int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attr) {
  if (auto* provider = owner_of(context)) {
    ibv_port_attr all{};
    const int error = provider->query_port(context, port, &all);
    if (error == 0) std::memcpy(attr, &all, offsetof(ibv_port_attr, flags));
    return error;
  }
  return only_real<&Real::ibv_query_port>(context, port, attr);
}

BEELINE_EXPORT int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  return route<&FullProvider::query_gid, &Real::ibv_query_gid, Refusal::minus_one>(context, port, index, gid);
}
BEELINE_EXPORT int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                                     ibv_gid_entry* entry, std::uint32_t flags, std::size_t entry_bytes) {
  if (auto* provider = owner_of(context)) {
    if (flags != 0) return EOPNOTSUPP;
    ibv_gid_entry whole{};
    const int error = provider->query_gid_ex(context, port, index, &whole);
    if (error == 0) std::memcpy(entry, &whole, std::min(entry_bytes, sizeof whole));
    return error;
  }
  return only_real<&Real::_ibv_query_gid_ex>(context, port, index, entry, flags, entry_bytes);
}
BEELINE_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                            std::size_t max_entries, std::uint32_t flags,
                                            std::size_t entry_bytes) {
  if (owner_of(context) == nullptr && !is_real(context)) return -EINVAL;
  return route<&FullProvider::query_gid_table, &Real::_ibv_query_gid_table>(context, entries, max_entries,
                                                                            flags, entry_bytes);
}
// Of libibverbs' private interface, but ibv_devinfo and pyverbs use it. Types as in sysfs: 1 is RoCE v2.
BEELINE_EXPORT int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type) {
  if (auto* provider = owner_of(context)) {
    ibv_gid_entry entry{};
    const int error = provider->query_gid_ex(context, port, index, &entry);
    // An empty entry of the table counts as InfiniBand or RoCE v1, as in the real library.
    if (error != 0 && error != ENODATA) return refuse<int, Refusal::minus_one>(error);
    *type = error == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
    return 0;
  }
  return only_real<&Real::ibv_query_gid_type, Refusal::minus_one>(context, port, index, type);
}
BEELINE_EXPORT int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
  return route<&FullProvider::query_pkey, &Real::ibv_query_pkey, Refusal::minus_one>(context, port, index,
                                                                                     pkey);
}
BEELINE_EXPORT int ibv_get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) {
  return route<&FullProvider::get_pkey_index, &Real::ibv_get_pkey_index, Refusal::minus_one>(context, port,
                                                                                             pkey);
}

BEELINE_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return route<&FullProvider::get_async_event, &Real::ibv_get_async_event, Refusal::minus_one>(context,
                                                                                               event);
}

}  // extern "C"
