// Queue pair numbers. The high byte is the process's slot on UDP 4791 (port.h), which is how
// datagrams find the process; the low 16 bits come from getrandom(2), so that a stranger
// cannot count them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "nic/card.h"

namespace beeline::nic {

class QpnTable {
 public:
  // At most half of the numbers are in use: drawing one takes two tries, and guessing
  // one stays as hard as finding it.
  static constexpr std::uint32_t max_queue_pairs = 32768;

  explicit QpnTable(port::Slot slot) : slot_(slot), queue_pairs_(numbers, nullptr) {}

  Result<Qpn> draw() const {
    if (size_ >= max_queue_pairs)
      return fail(Errc::resource_exhausted, "{} queue pairs exist in this process, and that is the limit",
                  size_);
    for (;;) {
      const auto low = static_cast<std::uint16_t>(secure_random());
      // Numbers 0 and 1 are the management queue pairs', 0xFFFFFF means multicast (IBTA vol. 1, 3.5.3).
      if (low > 1 && low != 0xFFFF && queue_pairs_[low] == nullptr)
        return Qpn{std::uint32_t{slot_.value} << 16 | low};
    }
  }
  void insert(Qpn qpn, QueuePair* qp) {
    queue_pairs_[low_bits(qpn)] = qp;
    ++size_;
  }
  void erase(Qpn qpn) {
    queue_pairs_[low_bits(qpn)] = nullptr;
    --size_;
  }
  QueuePair* find(Qpn qpn) const {
    return qpn.value >> 16 == slot_.value ? queue_pairs_[low_bits(qpn)] : nullptr;
  }
  std::uint32_t size() const { return size_; }

 private:
  static constexpr std::size_t numbers = 65536;
  static std::uint16_t low_bits(Qpn qpn) { return static_cast<std::uint16_t>(qpn.value); }

  port::Slot slot_;
  std::vector<QueuePair*> queue_pairs_;
  std::uint32_t size_ = 0;
};

}  // namespace beeline::nic
