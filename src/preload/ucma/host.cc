// Identifiers: made, found, bound, destroyed; and the agent of queue pair 1.
#include "preload/ucma/host.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/log.h"
#include "base/random.h"
#include "preload/ucma/user_memory.h"
namespace beeline::preload::ucma {
namespace {

constexpr std::size_t identifiers_max = 65536;
// Linux's net.ipv4.ip_local_port_range.
constexpr std::uint16_t first_ephemeral_port = 32768, ephemeral_ports = 28232;
constexpr int ephemeral_tries = 256;

std::uint16_t draw_ephemeral_port() {
  return static_cast<std::uint16_t>(first_ephemeral_port + secure_random() % ephemeral_ports);
}

}  // namespace

Host::Host(nic::Card& card) : card_(card), manager_(card.slot().value, secure_random) {
  card_.set_management_agent(this);
}

Host::~Host() { card_.set_management_agent(nullptr); }

// --- the agent ---

nic::ManagementAgent::Verdict Host::handle_mad(TimePoint now, const IpAddress& local, const IpAddress& remote,
                                               Bytes mad, bool) {
  const std::lock_guard lock(mutex_);
  const auto verdict = manager_.handle_mad(now, local, remote, mad);
  distribute();
  switch (verdict.fate) {
    case proto::cm::Manager::Fate::taken:
      return {Fate::taken};
    case proto::cm::Manager::Fate::for_slot:
      return {Fate::for_slot, verdict.slot};
    case proto::cm::Manager::Fate::not_here:
      return {Fate::for_everybody};
    case proto::cm::Manager::Fate::dropped:
      break;
  }
  return {Fate::dropped};
}

void Host::handle_timeout(TimePoint now) {
  const std::lock_guard lock(mutex_);
  manager_.handle_timeout(now);
  distribute();
}

TimePoint Host::next_timeout() const {
  const std::lock_guard lock(mutex_);
  return manager_.next_timeout();
}

std::size_t Host::poll_transmit(TimePoint, std::span<nic::OutMad> out) {
  const std::lock_guard lock(mutex_);
  proto::cm::OutMessage message;
  std::size_t count = 0;
  for (; count < out.size() && manager_.poll_transmit({&message, 1}) == 1; ++count)
    out[count] = {message.local, message.remote, message.bytes};
  return count;
}

// --- identifiers ---

namespace {

// Port spaces are for one kind of queue pair each, as in the kernel; RDMA_PS_IB for that which is named.
std::optional<proto::cm::Offer> offer_of(const rdma_ucm_create_id& body) {
  const unsigned type = body.ps == RDMA_PS_TCP   ? unsigned{IBV_QPT_RC}
                        : body.ps == RDMA_PS_UDP ? unsigned{IBV_QPT_UD}
                                                 : body.qp_type;
  switch (type) {
    case IBV_QPT_RC:
      return proto::cm::Offer::reliable;
    case IBV_QPT_UC:
      return proto::cm::Offer::unreliable;
    case IBV_QPT_UD:
      return proto::cm::Offer::datagrams;
    default:
      return std::nullopt;
  }
}

}  // namespace

Identifier& Host::make(File& file) {
  while (next_number_ == 0 || identifiers_.contains(next_number_)) ++next_number_;
  auto identifier = std::make_unique<Identifier>();
  identifier->number = next_number_;
  identifier->file = &file;
  return *(identifiers_[next_number_++] = std::move(identifier));
}

Identifier* Host::find(const File& file, std::uint32_t number, int& error) {
  const auto found = identifiers_.find(number);
  if (found == identifiers_.end()) {
    error = -ENOENT;
    return nullptr;
  }
  error = found->second->file == &file ? 0 : -EINVAL;
  return error == 0 ? found->second.get() : nullptr;
}

int Host::create_id(File& file, Bytes in, std::uint16_t out_bytes) {
  const auto body = body_of<rdma_ucm_create_id>(in);
  constexpr std::uint16_t known[] = {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB};
  if (std::find(std::begin(known), std::end(known), body.ps) == std::end(known)) return -EINVAL;
  const auto offer = offer_of(body);
  if (!offer) return -EINVAL;
  if (out_bytes < sizeof(rdma_ucm_create_id_resp)) return -ENOSPC;
  const std::lock_guard lock(mutex_);
  if (file.closed) return -EBADF;
  if (identifiers_.size() >= identifiers_max) return -ENOMEM;
  Identifier& identifier = make(file);
  identifier.uid = body.uid;
  identifier.space = static_cast<wire::cm::PortSpace>(body.ps);
  identifier.offer = *offer;
  identifier.local_end.psn = Psn{static_cast<std::uint32_t>(secure_random()) & Psn::mask};
  const int error = answer(body.response, out_bytes, rdma_ucm_create_id_resp{identifier.number});
  if (error != 0) destroy(identifier);
  return error;
}

int Host::destroy_id(File& file, Bytes in, std::uint16_t out_bytes) {
  const auto body = body_of<rdma_ucm_destroy_id>(in);
  if (out_bytes < sizeof(rdma_ucm_destroy_id_resp)) return -ENOSPC;
  rdma_ucm_destroy_id_resp response{};
  {
    const std::lock_guard lock(mutex_);
    int error = 0;
    Identifier* identifier = find(file, body.id, error);
    if (identifier == nullptr) return error;
    response.events_reported = identifier->events_reported;
    destroy(*identifier);
  }
  card_.serve_management();
  return answer(body.response, out_bytes, response);
}

void Host::destroy(Identifier& identifier) {
  const std::uint32_t number = identifier.number;
  if (identifier.stage == Stage::listening) {
    manager_.unlisten(identifier.listener);
    of_listener_.erase(identifier.listener);
    reject_waiting(number);
  }
  if (identifier.connection) {
    manager_.forget(card_.now(), *identifier.connection);
    of_connection_.erase(*identifier.connection);
  }
  (void)identifier.file->extract(
      [&](const QueuedEvent& event) { return event.response.id == number || event.counted_on == number; });
  identifiers_.erase(number);
}

// Those that its program has not accepted nor even been told of.
void Host::reject_waiting(std::uint32_t listener) {
  std::vector<Identifier*> waiting;
  for (auto& [number, identifier] : identifiers_)
    if (identifier->owner == listener && identifier->uid == 0) waiting.push_back(identifier.get());
  const auto untold = identifiers_.at(listener)->file->extract(
      [&](const QueuedEvent& event) { return event.counted_on == listener; });
  for (Identifier* identifier : waiting) {
    const bool told = std::none_of(untold.begin(), untold.end(), [&](const QueuedEvent& event) {
      return event.response.id == identifier->number;
    });
    if (!told) destroy(*identifier);
  }
}

void Host::release(File& file) {
  {
    const std::lock_guard lock(mutex_);
    file.closed = true;
    destroy_all(&file);
  }
  card_.serve_management();
}

void Host::destroy_all(const File* of) {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, identifier] : identifiers_)
    if (of == nullptr || identifier->file == of) numbers.push_back(number);
  for (const std::uint32_t number : numbers)
    if (const auto found = identifiers_.find(number); found != identifiers_.end()) destroy(*found->second);
}

void Host::part() {
  {
    const std::lock_guard lock(mutex_);
    destroy_all(nullptr);
  }
  card_.serve_management();
  constexpr Duration look_again = 2ms, repeat_after = 20ms;
  constexpr int repeats = 2;
  TimePoint repeat_at = card_.now() + repeat_after;
  for (int repeated = 0;;) {
    const TimePoint now = card_.now();
    {
      const std::lock_guard lock(mutex_);
      if (!manager_.is_parting()) return;
      if (now >= repeat_at) {
        if (repeated++ == repeats) return;
        manager_.repeat_partings(now);
        repeat_at = now + repeat_after;
      }
    }
    card_.serve_management();
    std::this_thread::sleep_for(look_again);
  }
}

// --- addresses and ports ---

// Programs see a number only; BEELINE_LOG=debug shows the sentence.
int Host::open_management(const IpAddress& local) {
  const auto opened = card_.open_management(local);
  if (opened) return 0;
  logger()->debug("rdma_cm: {}", opened.error().message);
  return opened.error().code == Errc::in_use ? -EADDRINUSE : -EADDRNOTAVAIL;
}

int Host::open_address(const Endpoint& source) {
  if (!source.is_wildcard())
    return device_with(card_, source.address) ? open_management(source.address) : -EADDRNOTAVAIL;
  bool opened = false;
  int error = -EADDRNOTAVAIL;
  for (const nic::Device& device : card_.devices())
    for (const Gid& gid : device.gids)
      if (gid.is_zero())
        continue;
      else if (const int refused = open_management(gid); refused == 0)
        opened = true;
      else
        error = refused;
  return opened ? 0 : error;
}

bool Host::collides(const Identifier& identifier, const Endpoint& source) const {
  return std::any_of(identifiers_.begin(), identifiers_.end(), [&](const auto& entry) {
    const Identifier& other = *entry.second;
    if (&other == &identifier || other.reservation == nullptr || other.space != identifier.space ||
        other.source.port != source.port)
      return false;
    const bool may_share = identifier.reuse_address && other.reuse_address && other.stage != Stage::listening;
    const bool overlap =
        other.source.is_wildcard() || source.is_wildcard()
            ? other.source.family == source.family || !(other.one_family || identifier.one_family)
            : other.source.address == source.address;
    return overlap && !may_share;
  });
}

std::shared_ptr<port::ServiceReservation> Host::own_reservation(std::uint64_t service_id) const {
  for (const auto& [number, other] : identifiers_)
    if (other->reservation != nullptr && other->service_id(other->source.port) == service_id)
      return other->reservation;
  return nullptr;
}

// Host-wide for all processes; within this one, different addresses may have the same port.
int Host::reserve_port(Identifier& identifier, Endpoint& source) {
  const bool given = source.port != 0;
  for (int tries = given ? 1 : ephemeral_tries; tries > 0; --tries) {
    if (!given) source.port = draw_ephemeral_port();
    if (collides(identifier, source)) continue;
    identifier.reservation = given ? own_reservation(identifier.service_id(source.port)) : nullptr;
    if (identifier.reservation != nullptr) return 0;
    auto reserved = port::ServiceReservation::reserve(identifier.service_id(source.port));
    if (reserved) {
      identifier.reservation = std::make_shared<port::ServiceReservation>(std::move(*reserved));
      return 0;
    }
    if (reserved.error().code != Errc::in_use) return -ENOMEM;
  }
  if (!given) source.port = 0;
  return -EADDRINUSE;
}

int Host::bind(File& file, std::uint32_t number, const Endpoint& wanted) {
  if (wanted.address.is_v4() && wanted.family == AF_INET6) return -EINVAL;
  if (const int error = open_address(wanted); error != 0) return error;
  const std::lock_guard lock(mutex_);
  int error = 0;
  Identifier* identifier = find(file, number, error);
  if (identifier == nullptr) return error;
  if (identifier->stage != Stage::idle) return -EINVAL;
  Endpoint source = wanted;
  if (error = reserve_port(*identifier, source); error != 0) return error;
  identifier->source = source;
  if (!source.is_wildcard()) identifier->place = device_with(card_, source.address);
  identifier->stage = Stage::bound;
  return 0;
}

int Host::resolve(File& file, std::uint32_t number, const std::optional<Endpoint>& given,
                  const Endpoint& destination) {
  if (given && given->family != destination.family) return -EINVAL;
  {
    const std::lock_guard lock(mutex_);
    int error = 0;
    const Identifier* identifier = find(file, number, error);
    if (identifier == nullptr) return error;
    if (identifier->stage != Stage::idle && identifier->stage != Stage::bound) return -EINVAL;
    if (identifier->stage == Stage::bound && identifier->source.family != destination.family) return -EINVAL;
    if (identifier->stage == Stage::bound && given && !given->is_wildcard() &&
        !identifier->source.is_wildcard() && given->address != identifier->source.address)
      return -EINVAL;
  }
  if (given && (!given->is_wildcard() || given->port != 0)) {
    const int error = bind(file, number, *given);
    if (error != 0 && error != -EINVAL) return error;  // EINVAL: bound already
  }
  const Route route = route_to(destination);
  const int opened = route.error == 0 ? open_management(route.source.address) : route.error;
  const std::lock_guard lock(mutex_);
  int error = 0;
  Identifier* identifier = find(file, number, error);
  if (identifier == nullptr) return error;
  Endpoint source = identifier->source;
  const bool free_choice = source.family == AF_UNSPEC || source.is_wildcard();
  if (free_choice) {
    const std::uint16_t port = source.port;
    source = route.source;
    source.port = port != 0 ? port : draw_ephemeral_port();
  }
  const auto place = device_with(card_, source.address);
  const bool routed = !free_choice || route.error == 0;
  const int failure = routed && !place ? -ENODEV : free_choice ? opened : 0;
  if (failure != 0) {
    post(*identifier, EventType::address_error, static_cast<std::uint32_t>(failure));
    return 0;
  }
  identifier->source = source;
  identifier->destination = destination;
  identifier->place = place;
  identifier->stage = Stage::address_resolved;
  post(*identifier, EventType::address_resolved);
  return 0;
}

}  // namespace beeline::preload::ucma
