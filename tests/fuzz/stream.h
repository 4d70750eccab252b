// A byte stream that arrives in pieces, for what reads from a connected socket.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"

namespace beeline::fuzz {

inline std::array<int, 2> socket_pair() {
  std::array<int, 2> ends{};
  BEELINE_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return ends;
}

// `pieces` for the largest ones.
constexpr std::uint8_t large_pieces = 11;

// Sends `bytes` to the descriptor that it hands out, piece by piece.
class Stream {
 public:
  Stream(Bytes bytes, std::uint8_t pieces)
      : rest_(bytes), prng_(pieces), longest_(1u << pieces % (large_pieces + 1)) {
    const auto [one, other] = socket_pair();
    near_ = one;
    far_ = other;
  }
  ~Stream() { hang_up(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The reader's end, which the reader owns from then on.
  int take_descriptor() { return std::exchange(far_, -1); }

  // Sends the next piece; false when all were sent.
  bool send_piece() {
    if (rest_.empty()) return false;
    const Bytes piece = rest_.first(std::min<std::size_t>(rest_.size(), 1 + prng_.below(longest_)));
    const auto sent = ::send(near_, piece.data(), piece.size(), MSG_NOSIGNAL);
    // The reader takes every piece before the next one comes, so there is room; it may have hung up.
    if (sent <= 0) return false;
    rest_ = rest_.subspan(static_cast<std::size_t>(sent));
    return true;
  }
  void hang_up() {
    for (int* const fd : {&near_, &far_})
      if (*fd >= 0) ::close(std::exchange(*fd, -1));
  }

 private:
  Bytes rest_;
  Prng prng_;
  std::uint64_t longest_;
  int near_ = -1, far_ = -1;
};

}  // namespace beeline::fuzz
