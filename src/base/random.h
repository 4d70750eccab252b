// Randomness: a seeded generator for tests and simulations, the kernel's for
// everything that a stranger on the network must not guess.
#pragma once

#include <cstdint>

namespace beeline {

// splitmix64 (Steele, Lea, Flood 2014): tiny, and the same sequence everywhere.
class Prng {
 public:
  explicit constexpr Prng(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // Uniform in 0 … bound-1; bound > 0.
  constexpr std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  // True with the given probability.
  constexpr bool chance(double probability) {
    return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
  }

 private:
  std::uint64_t state_;
};

// Unpredictable bits, from getrandom(2).
std::uint64_t secure_random();

}  // namespace beeline
