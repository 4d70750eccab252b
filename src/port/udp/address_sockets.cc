#include "port/udp/address_sockets.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "port/udp/raw_socket.h"
#include "port/udp/socket_address.h"
#include "port/udp/trains.h"

namespace beeline::port {
namespace {
// However many packets go astray, so often at most does a process ask around; less
// often where asking does not help (probes are filtered, the kernel takes no program).
constexpr Duration round_interval_min = 100ms, round_interval_max = 1600ms;
// What was learned is held against what a later round says: by then whoever joined or left
// at the same time has done so everywhere.
constexpr Duration confirm_after = 2 * round_time;
}  // namespace

Result<std::unique_ptr<AddressSockets>> AddressSockets::open(const IpAddress& address, Slot own,
                                                             bool see_ip_headers, Segmentation segmentation) {
  BEELINE_TRY(const std::uint32_t scope_id, scope_of(address));
  BEELINE_TRY(Descriptor data, open_data_socket(address, scope_id));
  Descriptor raw;
  if (see_ip_headers && address.is_v4()) {  // IPv6 has no identification
    BEELINE_TRY(raw, open_raw_socket(address, own));
    BEELINE_TRY_VOID(drop_what_the_raw_socket_takes(data.get(), own));
  }
  // Of merged datagrams a raw socket would show one IP header, and what others wrote into theirs may differ.
  // Where nothing is merged, this keeps the kernel from cutting trains for a UDP socket that drops them.
  if (segmentation != Segmentation::off && (!raw || merges_nothing(cutting_facts(address))))
    take_merged_datagrams(data);
  const TrainRule trains = train_rule(segmentation, address);
  logger()->debug("UDP port {} opened on {}, as slot {}{}; trains are sent: {} ({})", roce_port,
                  to_string(address), own.value, raw ? ", with a raw socket that shows IP headers" : "",
                  trains.allowed ? "yes" : "no", trains.reason);
  return std::unique_ptr<AddressSockets>(
      new AddressSockets(address, scope_id, std::move(data), std::move(raw), trains.allowed));
}

AddressSockets::AddressSockets(const IpAddress& address, std::uint32_t scope_id, Descriptor data,
                               Descriptor raw, bool takes_trains)
    : address_(address),
      scope_id_(scope_id),
      data_(std::move(data)),
      raw_(std::move(raw)),
      takes_trains_(takes_trains),
      flows_(address, scope_id),
      round_interval_(round_interval_min) {}

bool AddressSockets::tick(Slot own, TimePoint now, int peers) {
  if (learner_.active() && learner_.give_up_if_late(now)) attach(own, now);
  if (learner_.active() || now < next_tick()) return false;
  first_round_ = learning_wanted_;
  learning_wanted_ = false;
  confirm_at_ = TimePoint::never();
  next_round_ = now + round_interval_;
  learner_.begin(secure_random(), now, peers + 1);
  send_probes(own);
  return true;
}

TimePoint AddressSockets::next_tick() const {
  if (learner_.active()) return learner_.deadline();
  return learning_wanted_ ? next_round_ : confirm_at_;
}

void AddressSockets::learn(std::uint64_t nonce, std::uint8_t index, Slot holder, Slot own, TimePoint now) {
  if (learner_.record(nonce, index, holder)) attach(own, now);
  send_probes(own);
}

// From the data socket to itself: the address is local, so this never leaves the host.
void AddressSockets::send_probes(Slot own) {
  const IndexLearner::Indices due = learner_.take_probes();
  SocketAddress name;
  const socklen_t length = fill(name, address_, roce_port, scope_id_);
  for (int i = 0; i < due.count; ++i) {
    const auto bytes = encode(Probe{static_cast<std::uint8_t>(due.first + i), own, learner_.nonce()});
    // A probe that is lost costs a round that ends by its deadline.
    ::sendto(data_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL, &name.any, length);
  }
}

void AddressSockets::attach(Slot own, TimePoint now) {
  const SteeringTable table = learner_.table();
  if (!attach_steering(data_.get(), table))
    logger()->debug("cannot steer UDP {} on {}: packets of other processes will be handed over", roce_port,
                    to_string(address_));
  // All probes went elsewhere: there was no program yet. Now there is one: ask again.
  const bool found = table.index_of_slot[own.value] >= 0;
  round_interval_ = found ? round_interval_min : std::min(2 * round_interval_, round_interval_max);
  if (!found)
    learning_wanted_ = true;
  else if (first_round_ || table != attached_)
    confirm_at_ = now + confirm_after;
  first_round_ = false;
  attached_ = table;
}

void AddressSockets::stop_trains() {
  if (!takes_trains_) return;
  takes_trains_ = false;
  logger()->info("the kernel takes no trains of packets from {}: they leave one by one", to_string(address_));
}

void AddressSockets::close_all() {
  data_.reset();
  raw_.reset();
  flows_.close_all();
}

}  // namespace beeline::port
