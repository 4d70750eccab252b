// Everything a port has for one of its addresses.
#pragma once

#include <memory>

#include "port/udp/data_socket.h"
#include "port/udp/flow_sockets.h"
#include "port/udp/steering.h"

namespace beeline::port {

class AddressSockets {
 public:
  static Result<std::unique_ptr<AddressSockets>> open(const IpAddress& address);

  const IpAddress& address() const { return address_; }
  std::uint32_t scope_id() const { return scope_id_; }
  int data() const { return data_.get(); }
  FlowSockets& flows() { return flows_; }

  // --- steering: learn which index of the reuseport group is whose ---
  // Learning is wanted because packets for `own` came through the hand-over channel,
  // or the socket is new.
  void want_learning() { learning_wanted_ = true; }
  // Begins and ends rounds; cheap when there is nothing to do.
  void tick(Slot own, TimePoint now);
  // When tick() will have something to do; never() once things are settled.
  TimePoint next_tick() const;
  // The answer to a probe of ours: `holder` received it.
  void learn(std::uint64_t nonce, std::uint8_t index, Slot holder, Slot own);

  void close_all();

 private:
  AddressSockets(const IpAddress& address, std::uint32_t scope_id, Descriptor data);
  void send_probes(Slot own);
  void attach(Slot own);

  IpAddress address_;
  std::uint32_t scope_id_;
  Descriptor data_;
  FlowSockets flows_;
  IndexLearner learner_;
  bool learning_wanted_ = true;
  TimePoint next_round_{};
  Duration round_interval_;
};

}  // namespace beeline::port
