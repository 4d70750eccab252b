#include "perf/pattern.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/random.h"

namespace beeline::perf {
namespace {

using Word = std::array<std::byte, 8>;

// The stream of words that belongs to a key.
class Words {
 public:
  explicit Words(const PatternKey& key)
      : prng_(Prng(key.iteration * 2 + (key.from_server ? 1 : 0)).next() + key.queue_pair) {}
  Word next() {
    const std::uint64_t value = prng_.next();
    Word word;
    std::memcpy(word.data(), &value, sizeof value);
    return word;
  }

 private:
  Prng prng_;
};

}  // namespace

void fill_pattern(MutableBytes bytes, const PatternKey& key) {
  Words words(key);
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Word)) {
    const Word word = words.next();
    std::memcpy(bytes.data() + at, word.data(), std::min(sizeof(Word), bytes.size() - at));
  }
}

void fill_poison(MutableBytes bytes, const PatternKey& key) {
  fill_pattern(bytes, key);
  for (std::byte& byte : bytes) byte = ~byte;
}

PatternDamage check_pattern(Bytes bytes, const PatternKey& key) {
  PatternDamage damage;
  Words words(key);
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Word)) {
    const Word word = words.next();
    const std::size_t length = std::min(sizeof(Word), bytes.size() - at);
    if (std::memcmp(bytes.data() + at, word.data(), length) == 0) continue;
    for (std::size_t i = 0; i < length; ++i) {
      if (bytes[at + i] == word[i]) continue;
      if (damage.wrong_bytes++ == 0) damage.first_offset = at + i;
    }
  }
  return damage;
}

}  // namespace beeline::perf
