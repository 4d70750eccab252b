// The card's devices while links and addresses of the host come and go.
#include "base/log.h"
#include "nic/card_impl.h"

namespace beeline::nic {

std::vector<Device> CardImpl::devices() const {
  const std::lock_guard lock(devices_mutex_);
  return devices_;
}

Device CardImpl::device(int index) const {
  const std::lock_guard lock(devices_mutex_);
  return devices_.at(static_cast<std::size_t>(index));
}

void CardImpl::add_port_sink(PortSink sink, void* cookie) {
  const std::lock_guard lock(port_sinks_mutex_);
  port_sinks_[cookie] = sink;
}

void CardImpl::remove_port_sink(void* cookie) {
  const std::lock_guard lock(port_sinks_mutex_);
  port_sinks_.erase(cookie);
}

// What has changed since the devices were made, the port may not have heard of.
void CardImpl::follow_host() {
  follows_host_.store(true);
  update_devices();
}

// On the progress thread, but for the first time. The link first, then the GIDs, as the kernel reports them:
// taking a link down takes IPv6 addresses away. Queue pairs stay as they are: an address may come back.
void CardImpl::update_devices() {
  const std::lock_guard following(following_mutex_);
  const auto interfaces = port_->interfaces();
  if (!interfaces) {
    logger()->warn("a change of interfaces was not followed: {}", interfaces.error().message);
    return;
  }
  std::vector<DeviceChange> changes;
  {
    const Engine::Exclusive engine(engine_);
    const std::lock_guard lock(devices_mutex_);
    for (Device& device : devices_) changes.push_back(update_device(device, *interfaces));
  }
  for (int i = 0; i < static_cast<int>(changes.size()); ++i) {
    const DeviceChange& change = changes[static_cast<std::size_t>(i)];
    if (change.gids) open_new_addresses(i);
    const std::lock_guard lock(port_sinks_mutex_);
    for (const auto& [cookie, sink] : port_sinks_) {
      if (change.state) sink(cookie, i, device(i).active ? PortEvent::active : PortEvent::error);
      if (change.gids) sink(cookie, i, PortEvent::gids_changed);
    }
  }
}

// Whoever takes datagrams takes those to a new address, too.
void CardImpl::open_new_addresses(int device) {
  const std::lock_guard lock(mutex_);
  const bool takes_datagrams =
      std::any_of(queue_pairs_.begin(), queue_pairs_.end(), [device](const auto& entry) {
        const std::lock_guard pair(entry.first->mutex);
        const proto::QpState state = entry.first->protocol.state();
        return entry.first->device == device && entry.first->type == proto::QpType::ud &&
               (state == proto::QpState::rtr || state == proto::QpState::rts);
      });
  if (!takes_datagrams) return;
  if (const auto opened = open_all_addresses(device); !opened)
    logger()->warn("datagrams to new addresses do not arrive: {}", opened.error().message);
}

}  // namespace beeline::nic
