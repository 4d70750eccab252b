// Memory windows: allocating, binding, invalidating (IBTA vol. 1, 10.6.7).
#include "base/check.h"
#include "nic/region_table.h"

namespace beeline::nic {

using proto::Access;
using proto::MemoryStatus;
using proto::WindowBind;

namespace {

constexpr Access window_rights =
    Access::remote_write | Access::remote_read | Access::remote_atomic | Access::zero_based;

Access rights_of(const WindowBind& bind) {
  return static_cast<Access>(bind.access & static_cast<std::uint8_t>(window_rights));
}
bool wants_more_than_window_rights(const WindowBind& bind) {
  return (bind.access & ~static_cast<std::uint8_t>(window_rights)) != 0;
}

// Every rule about what may be bound to what.
MemoryStatus check_bind(PdId domain, const Region& window, const Region* region, const WindowBind& bind) {
  const bool type_1 = window.kind == Region::Kind::window_1;
  const Access rights = rights_of(bind);
  if (window.domain != domain) return MemoryStatus::wrong_domain;
  if (wants_more_than_window_rights(bind)) return MemoryStatus::no_permission;
  if (type_1) {
    if (KeyTable::variant(window.key, bind.new_rkey) == window.key) return MemoryStatus::bad_key;
    if (bind.length == 0) return MemoryStatus::ok;
    // Addresses in a type 1 window are always those of the region.
    if (proto::allows(rights, Access::zero_based)) return MemoryStatus::no_permission;
  } else if (window.under != nullptr || bind.length == 0) {
    return MemoryStatus::no_permission;  // it must be invalidated first, and that is the only way to end it
  }
  if (region == nullptr || region->busy) return MemoryStatus::bad_key;
  if (region->domain != domain) return MemoryStatus::wrong_domain;
  if (bind.address < region->iova || bind.length > region->bytes ||
      bind.address - region->iova > region->bytes - bind.length)
    return MemoryStatus::out_of_bounds;
  if (!proto::allows(region->access, Access::window_bind)) return MemoryStatus::no_permission;
  const bool writes =
      proto::allows(rights, Access::remote_write) || proto::allows(rights, Access::remote_atomic);
  if (writes && !proto::allows(region->access, Access::local_write)) return MemoryStatus::no_permission;
  return MemoryStatus::ok;
}

}  // namespace

Result<Key> RegionTable::add_window(PdId domain, WindowType type) {
  if (type != WindowType::type_1 && type != WindowType::type_2)
    return fail(Errc::invalid_argument, "memory windows are of type 1 or 2, not {}", static_cast<int>(type));
  const std::lock_guard lock(mutex_);
  if (windows_ >= max_windows_)
    return fail(Errc::resource_exhausted, "{} memory windows exist, and that is the limit", windows_);
  Key key;
  auto* entry = keys_.draw(key);
  const std::uint32_t place = take_place();
  Region& window = region_at(place);
  window.kind = type == WindowType::type_1 ? Region::Kind::window_1 : Region::Kind::window_2;
  window.key = key;
  window.domain = domain;
  entry->set(key, place | window_bit);
  ++windows_;
  if (type == WindowType::type_2) type_2_windows_.fetch_add(1);
  return key;
}

Result<PdId> RegionTable::remove_window(Key key) {
  const std::lock_guard lock(mutex_);
  auto* entry = keys_.find_family(key);
  if (entry == nullptr || !is_window(entry->place()))
    return fail(Errc::not_found, "no memory window has the key {:#010x}", key.value);
  const std::uint32_t place = entry->place();
  Region& window = region_at(place);
  entry->clear();
  unbind(window);
  if (window.kind == Region::Kind::window_2) type_2_windows_.fetch_sub(1);
  --windows_;
  give_back_place(place);
  return window.domain;
}

// Waits for copies that came in by the window; each is one call of write(), read() or atomic(), and none
// of those waits for anything.
void RegionTable::unbind(Region& window) {
  if (window.under == nullptr) return;
  window.gate.close();
  --window.under->windows;
  window.under = nullptr;
  window.owner = {};
}

void RegionTable::unbind_windows_of(Qpn qpn) {
  if (type_2_windows_.load() == 0) return;
  const std::lock_guard lock(mutex_);
  for (std::uint32_t place = 1; place <= places_; ++place) {
    Region& window = region_at(place);
    if (window.kind == Region::Kind::window_2 && window.under != nullptr && window.owner == qpn)
      unbind(window);
  }
}

MemoryStatus RegionTable::bind(PdId domain, Qpn qpn, const WindowBind& bind) {
  const std::lock_guard lock(mutex_);
  // By any key that it has or had: a program that binds through ibv_post_send need not keep mw->rkey fresh.
  auto* entry = keys_.find_family(bind.window);
  if (entry == nullptr || !is_window(entry->place())) return MemoryStatus::bad_key;
  Region& window = region_at(entry->place());
  const std::uint32_t place_below = keys_.find(bind.region);
  Region* region = place_below == 0 || is_window(place_below) ? nullptr : &region_at(place_below);
  if (const auto status = check_bind(domain, window, region, bind); status != MemoryStatus::ok) return status;

  unbind(window);
  window.key = KeyTable::variant(window.key, bind.new_rkey);
  entry->set(window.key, entry->place());
  if (bind.length == 0) return MemoryStatus::ok;
  window.memory = region->memory + (bind.address - region->iova);
  window.bytes = bind.length;
  window.access = rights_of(bind);
  window.iova = proto::allows(window.access, Access::zero_based) ? 0 : bind.address;
  window.owner = qpn;
  window.under = region;
  ++region->windows;
  window.gate.open();
  return MemoryStatus::ok;
}

MemoryStatus RegionTable::invalidate(PdId domain, Qpn qpn, Key key) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t place = keys_.find(key);
  if (!is_window(place)) return place == 0 ? MemoryStatus::bad_key : MemoryStatus::no_permission;
  Region& window = region_at(place);
  if (window.domain != domain) return MemoryStatus::wrong_domain;
  if (window.kind != Region::Kind::window_2) return MemoryStatus::no_permission;
  if (window.under == nullptr) return MemoryStatus::bad_key;
  if (window.owner != qpn) return MemoryStatus::no_permission;
  unbind(window);
  return MemoryStatus::ok;
}

MemoryStatus RegionTable::check_user(Key key, Qpn qpn) {
  if (type_2_windows_.load(std::memory_order_relaxed) == 0) return MemoryStatus::ok;
  const std::uint32_t place = keys_.find(key);
  if (!is_window(place)) return MemoryStatus::ok;
  Region& window = region_at(place);
  if (!window.gate.enter()) return MemoryStatus::bad_key;
  const RegionUse inside(&window);
  if (window.key != key) return MemoryStatus::bad_key;
  return window.kind != Region::Kind::window_2 || window.owner == qpn ? MemoryStatus::ok
                                                                      : MemoryStatus::no_permission;
}

}  // namespace beeline::nic
