#include "port/udp/steering.h"

#include <sys/socket.h>

#include <algorithm>
#include <bitset>

namespace beeline::port {
namespace {

constexpr std::uint16_t probe_magic = 0xBEE1;
constexpr std::uint8_t probe_version = 1;
constexpr std::uint32_t slot_offset = 5;  // BTH: DestQP[23:16]
constexpr int first_probes = 4;

}  // namespace

std::array<std::byte, probe_bytes> encode(const Probe& probe) {
  std::array<std::byte, probe_bytes> bytes{};
  store_u8(bytes.data(), probe_marker);
  store_u8(bytes.data() + 1, probe.index);
  store_be16(bytes.data() + 2, probe_magic);
  store_u8(bytes.data() + 4, probe_version);
  store_u8(bytes.data() + slot_offset, probe.prober.value);
  store_be64(bytes.data() + 8, probe.nonce);
  return bytes;
}

std::optional<Probe> parse_probe(Bytes datagram) {
  const std::byte* p = datagram.data();
  if (datagram.size() != probe_bytes || load_u8(p) != probe_marker || load_be16(p + 2) != probe_magic ||
      load_u8(p + 4) != probe_version || load_be16(p + 6) != 0)
    return std::nullopt;
  return Probe{load_u8(p + 1), Slot{load_u8(p + slot_offset)}, load_be64(p + 8)};
}

std::vector<sock_filter> steering_program(const SteeringTable& table) {
  // A load behind the end of a short datagram ends the program with 0: the first socket.
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, probe_marker, 0, 2),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 1),
      BPF_STMT(BPF_RET | BPF_A, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, slot_offset),
  };
  for (std::uint32_t slot = 0; slot < table.index_of_slot.size(); ++slot) {
    if (table.index_of_slot[slot] < 0) continue;
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, slot, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, static_cast<std::uint32_t>(table.index_of_slot[slot])));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_A, 0));
  return program;
}

bool attach_steering(int socket, const SteeringTable& table) {
  std::vector<sock_filter> code = steering_program(table);
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) == 0;
}

void IndexLearner::begin(std::uint64_t nonce, TimePoint now, int members) {
  active_ = true;
  nonce_ = nonce;
  deadline_ = now + round_time;
  probed_ = 0;
  wanted_ = std::clamp(members, first_probes, static_cast<int>(holder_.size()));
  holder_.fill(-1);
}

IndexLearner::Indices IndexLearner::take_probes() {
  const Indices due{probed_, active_ ? wanted_ - probed_ : 0};
  probed_ += due.count;
  return due;
}

// An index that does not exist is sent by the hash of addresses and ports, the same for
// all probes: to one socket, which has answered for its own, smaller index too. So the
// first holder that shows up twice marks the size of the group.
IndexLearner::Progress IndexLearner::progress() const {
  std::bitset<256> seen;
  for (int index = 0; index < probed_; ++index) {
    if (holder_[index] < 0) return Progress::waiting;
    if (seen[holder_[index]]) return Progress::complete;
    seen[holder_[index]] = true;
  }
  return probed_ == static_cast<int>(holder_.size()) ? Progress::complete : Progress::wants_more;
}

bool IndexLearner::record(std::uint64_t nonce, std::uint8_t index, Slot holder) {
  if (nonce != nonce_ || index >= probed_ || holder_[index] == holder.value) return false;
  holder_[index] = holder.value;
  if (!active_) return true;
  switch (progress()) {
    case Progress::waiting:
      return false;
    case Progress::wants_more:
      wanted_ = std::min(2 * probed_, static_cast<int>(holder_.size()));
      return false;
    case Progress::complete:
      active_ = false;
      return true;
  }
  return false;
}

bool IndexLearner::give_up_if_late(TimePoint now) {
  if (!active_ || now < deadline_) return false;
  active_ = false;
  return true;
}

SteeringTable IndexLearner::table() const {
  SteeringTable table;
  for (int index = probed_ - 1; index >= 0; --index)  // downwards: the smallest index of a holder counts
    if (holder_[index] >= 0)
      table.index_of_slot[static_cast<std::size_t>(holder_[index])] = static_cast<std::int16_t>(index);
  return table;
}

}  // namespace beeline::port
