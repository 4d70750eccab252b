// Copies as a card's DMA does them: in address order, seen in that order by whoever
// polls the memory. The last bytes, where flags stand, move as single atomic words.
#pragma once

#include <cstddef>

namespace beeline::verbs::fake {
void copy_out(std::byte* to, const std::byte* shared, std::size_t bytes);
void copy_in(std::byte* shared, const std::byte* from, std::size_t bytes);
}  // namespace beeline::verbs::fake
