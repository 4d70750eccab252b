// From descriptors of the protocol to datagrams and trains of them (train_builder.h): headers, payload by
// reference or by copy, pad, ICRC.
// A batch collects packets of several queue pairs and sends them with one call to the port.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "nic/queue_pair.h"
#include "nic/region_table.h"
#include "nic/train_builder.h"
#include "wire/icrc.h"

namespace beeline::nic {

class TxBatch {
 public:
  static constexpr std::size_t max_packets = 64;
  static constexpr std::size_t max_queue_pairs = 16;  // locked at once

  TxBatch(port::Port& port, RegionTable& regions, CardCounters& counters);

  bool empty() const { return share_count_ == 0; }
  // How many more packets it takes; 0 also when it holds enough queue pairs.
  std::size_t room() const { return share_count_ < max_queue_pairs ? max_packets - desc_count_ : 0; }

  // Takes up to `quota` packets of the queue pair. When there are any, the batch keeps `lock` (on
  // qp.mutex) until flush(), because descriptors refer into the queue pair, and returns how many
  // payload bytes they carry in `payload_bytes`. False when there was nothing to send.
  bool add(QueuePair& qp, std::unique_lock<BriefLock>& lock, std::size_t quota, TimePoint now,
           std::size_t& payload_bytes);

  // Sends everything and tells each queue pair what became of it; then calls after(qp) while
  // it is still locked. False when the port had no room for some.
  template <class After>
  bool flush(TimePoint now, After&& after) {
    const bool all_sent = send(now);
    for (std::size_t i = 0; i < share_count_; ++i) {
      after(*shares_[i].qp);
      shares_[i].lock.unlock();
    }
    share_count_ = packet_count_ = desc_count_ = 0;
    return all_sent;
  }

 private:
  static constexpr std::size_t max_payload = 4096;
  static constexpr std::size_t max_pieces = proto::max_sge + 2;  // headers, payload, trailer
  static_assert(max_pieces <= port::packet_pieces_max);

  // One packet under construction: what the kernel gathers, and room for all that is copied.
  struct Packet {
    std::array<std::byte, wire::max_header_bytes + max_payload + 3 + wire::icrc_bytes> buffer;
    std::array<iovec, max_pieces> pieces;
    std::size_t piece_count = 0;
    std::array<RegionUse, proto::max_sge> uses;  // gates held while the kernel gathers
    std::size_t use_count = 0;
    std::byte* icrc = nullptr;  // in the buffer
    std::size_t bytes = 0;      // all of it
  };
  // The packets of one queue pair: `polled` descriptors from `first` on, the first `built` of which
  // became packets from `first_packet` on. When built < polled, the next could not be read.
  struct Share {
    QueuePair* qp = nullptr;
    std::unique_lock<BriefLock> lock;
    std::size_t first_desc = 0, polled = 0, first_packet = 0, built = 0;
  };

  bool build(const proto::TxDesc& desc, const QueuePair& qp);
  bool may_use(const proto::MemoryRef& ref, const QueuePair& qp);
  bool copy_payload(const proto::TxDesc& desc, const QueuePair& qp, std::byte* to);
  bool refer_payload(const proto::TxDesc& desc, const QueuePair& qp, Packet& packet, wire::Icrc& crc);
  bool send(TimePoint now);
  std::size_t send_all();
  void take_apart(std::span<port::OutPacket> unsent);
  void settle(const Share& share, TimePoint now);

  port::Port& port_;
  RegionTable& regions_;
  CardCounters& counters_;
  TrainBuilder train_;
  std::vector<Packet> packets_;
  std::vector<proto::TxDesc> descs_;
  std::array<port::OutPacket, max_packets> out_;
  std::array<Share, max_queue_pairs> shares_;
  std::size_t packet_count_ = 0, desc_count_ = 0, share_count_ = 0;
};

}  // namespace beeline::nic
