// Everything a port has for one of its addresses.
#pragma once

#include <memory>

#include "base/config.h"
#include "port/udp/data_socket.h"
#include "port/udp/flow_sockets.h"
#include "port/udp/steering.h"

namespace beeline::port {

class AddressSockets {
 public:
  // `see_ip_headers`: IPv4 packets for `own` come through a raw socket (raw_socket.h).
  static Result<std::unique_ptr<AddressSockets>> open(const IpAddress& address, Slot own, bool see_ip_headers,
                                                      Segmentation segmentation);

  const IpAddress& address() const { return address_; }
  std::uint32_t scope_id() const { return scope_id_; }
  int data() const { return data_.get(); }
  int raw() const { return raw_.get(); }  // -1: there is none
  FlowSockets& flows() { return flows_; }
  bool takes_trains() const { return takes_trains_; }
  void show_hop_limits() { port::show_hop_limits(data_, address_.is_v4()); }
  void stop_trains();  // the kernel says that it does not

  // --- steering: learn which index of the reuseport group is whose ---
  // Something has changed, or seems to have.
  void want_learning() { learning_wanted_ = true; }
  // Begins and ends rounds; cheap when there is nothing to do. `peers`: processes that may share the
  // port. True when a round began.
  bool tick(Slot own, TimePoint now, int peers);
  // When tick() will have something to do; never() once things are settled.
  TimePoint next_tick() const;
  // The answer to a probe of ours: `holder` received it.
  void learn(std::uint64_t nonce, std::uint8_t index, Slot holder, Slot own, TimePoint now);

  void close_all();

 private:
  AddressSockets(const IpAddress& address, std::uint32_t scope_id, Descriptor data, Descriptor raw,
                 bool takes_trains);
  void send_probes(Slot own);
  void attach(Slot own, TimePoint now);

  IpAddress address_;
  std::uint32_t scope_id_;
  Descriptor data_, raw_;
  bool takes_trains_;
  FlowSockets flows_;
  IndexLearner learner_;
  SteeringTable attached_;
  bool learning_wanted_ = true;
  bool first_round_ = true;  // since learning was wanted: whatever it says, it is to be confirmed
  TimePoint next_round_{};
  TimePoint confirm_at_ = TimePoint::never();
  Duration round_interval_;
};

}  // namespace beeline::port
