// The sending half of an unreliable queue pair: work requests become packets, and nobody answers. A request
// is complete when its last packet has been handed to the port (IBTA vol. 1, 9.8.2.1 and 9.8.3.1).
//
// What poll_transmit gave is handed over, unless the owner says otherwise (transmit_refused, transmit_fault)
// before it makes any other call: until then the batch is open, and its requests keep their places. settle()
// closes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/ops/operations.h"

namespace beeline::proto {

class UnreliableSender {
 public:
  UnreliableSender(const QpSetup& setup, Operations& operations, QpCounters& counters);

  void start();   // RTR to RTS
  void forget();  // the send queue has been flushed or cleared

  PostResult post(const SendWr& wr);

  bool wants_transmit() const;
  std::size_t poll_transmit(std::span<TxDesc> out);
  void transmit_fault(const TxDesc& desc);
  void transmit_refused(std::span<const TxDesc> unsent);

  void settle();
  // Whether settle() would give a completion.
  bool owes_completion() const { return signaled_in_batch_ != 0 || failure_ != WcStatus::success; }

 private:
  struct Position {
    std::uint64_t sequence = 0;  // of the send request
    std::uint32_t packet = 0;    // within it
  };

  const SendRequest& current() const { return operations_.sends()[cursor_.sequence]; }
  std::uint32_t packets_of(const SendRequest& request) const;
  PostResult check_datagram(const SendWr& wr) const;
  bool begin_request();
  void emit(TxDesc& desc);
  void build(const SendRequest& request, TxDesc& desc) const;
  void address(TxDesc& desc) const;
  void advance(const SendRequest& request);
  void go_back_to(Psn psn);
  bool in_batch(Psn psn) const;

  Operations& operations_;
  QpCounters& counters_;
  const QpType type_;
  const std::uint32_t datagram_mtu_;

  std::uint32_t mtu_ = 0;
  Position cursor_;  // what goes out next
  Psn next_psn_;
  Position batch_begin_;  // where the cursor stood before the open batch
  Psn batch_psn_;
  std::size_t signaled_in_batch_ = 0;     // requests that the open batch finishes
  WcStatus failure_ = WcStatus::success;  // why the request at the cursor cannot be sent
};

}  // namespace beeline::proto
