// A collective algorithm as data: for each rank a list of steps over chunks. Pure: no
// bytes move here. The same plan is verified (verify.h), executed and simulated.
//
// Counts are symbolic. The operation's buffer is cut into `chunk_count` chunks; the
// executor turns a chunk into a range of elements (chunk_range), and repeats the whole plan
// for one piece of every chunk after the other when chunks are long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace beeline::coll {

enum class Operation : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, barrier };
std::string_view name(Operation operation);
enum class Algorithm : std::uint8_t { ring };

// Buffers of a rank. Full-size ones hold all `chunk_count` chunks:
//   input   all_reduce, reduce_scatter, broadcast: full size; all_gather: this rank's chunk only
//   output  all_reduce, all_gather, broadcast: full size; reduce_scatter: this rank's chunk only
//   scratch full size by index, but a chunk of it exists only between its writing step and its
//           last reader, so the executor needs few slots
// Input and output may be the same memory (in place).
enum class Buffer : std::uint8_t { input, output, scratch };

struct Slice {
  Buffer buffer = Buffer::input;
  std::uint32_t chunk = 0;

  friend constexpr auto operator<=>(Slice, Slice) = default;  // NOLINT(modernize-use-nullptr)
};

enum class StepKind : std::uint8_t {
  send,            // source -> peer
  receive,         // peer -> destination
  receive_reduce,  // destination = combine(what the peer sends, source), operands in the order `peer_first`
  copy,            // destination = source
};

// The k-th send of rank a to rank b meets the k-th receive(_reduce) of b from a.
struct Step {
  StepKind kind = StepKind::send;
  Rank peer{-1};           // not for copy
  Slice source{};          // send, copy, receive_reduce
  Slice destination{};     // receive, receive_reduce, copy
  bool peer_first = true;  // receive_reduce: combine(peer, own) or combine(own, peer)
  bool completes =
      false;  // receive_reduce: the result holds every rank's contribution (averages divide here)
  std::vector<std::uint32_t> after{};  // indices of earlier steps of this rank that must be complete
};

struct Plan {
  Operation operation = Operation::barrier;
  int group_size = 1;
  Rank rank{0};
  Rank root{0};  // broadcast
  std::uint32_t chunk_count = 1;
  std::vector<Step> steps;
};

// group_size >= 1; a group of one gets copies only. Errors: a rank or root outside the group.
Result<Plan> make_plan(Operation operation, Algorithm algorithm, int group_size, Rank rank,
                       Rank root = Rank{0});

// Elements [begin, end) of chunk `index` when `count` elements are cut into `chunks` chunks:
// lengths differ by at most one, longer ones first. For reduce_scatter and all_gather callers
// pass count = group_size * per-rank count, so that every chunk is one rank's block.
struct Range {
  std::size_t begin = 0, end = 0;
  constexpr std::size_t size() const { return end - begin; }
};
constexpr Range chunk_range(std::size_t count, std::uint32_t chunks, std::uint32_t index) {
  const std::size_t base = count / chunks, longer = count % chunks;
  const std::size_t begin = index * base + (index < longer ? index : longer);
  return {begin, begin + base + (index < longer ? 1 : 0)};
}

}  // namespace beeline::coll
