// How many new requests a source may make: a token bucket for each of a fixed number of hashes, so that
// neither sources nor their number cost memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/address.h"
#include "base/time.h"

namespace beeline::proto::cm {

class RateLimit {
 public:
  RateLimit(std::uint64_t secret, std::uint32_t burst, Duration per_token)
      : secret_(secret), per_token_(per_token), full_(per_token * burst) {}

  // False when this source has had its share.
  bool take(const IpAddress& source, TimePoint now) {
    TimePoint& empty_at = buckets_[index(source)];
    // A bucket that was never used was empty at the beginning of time: it has filled up since.
    empty_at = std::max(empty_at, now - full_);
    if (now - empty_at < per_token_) return false;
    empty_at = empty_at + per_token_;
    return true;
  }

 private:
  static constexpr std::size_t bucket_count = 256;

  std::size_t index(const IpAddress& source) const {
    std::uint64_t halves[2];
    std::memcpy(halves, source.bytes.data(), 16);
    std::uint64_t hash = (halves[0] ^ secret_) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 29 ^ halves[1]) * 0xBF58476D1CE4E5B9u;
    return (hash >> 40) % bucket_count;
  }

  const std::uint64_t secret_;
  const Duration per_token_, full_;
  std::array<TimePoint, bucket_count> buckets_{TimePoint{INT64_MIN / 2}};
};

}  // namespace beeline::proto::cm
