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
//   ring           every byte crosses each link once; n - 1 rounds (2n - 2 for all_reduce)
//   direct         every rank sends its contribution to every other: one round, n - 1 messages
//   dissemination  in round k every rank tells the one 2^k places to its left all that it has got:
//                  ceil(log2 n) rounds of one message
// In the latter two every rank hears of every other, and combines the contributions itself.
enum class Algorithm : std::uint8_t { ring, direct, dissemination };
inline constexpr Algorithm all_algorithms[] = {Algorithm::ring, Algorithm::direct, Algorithm::dissemination};
std::string_view name(Algorithm algorithm);

// Buffers of a rank. Full-size ones hold all `chunk_count` chunks:
//   input   all_reduce, reduce_scatter, broadcast: full size; all_gather: this rank's chunk only
//   output  all_reduce, all_gather, broadcast: full size; reduce_scatter: this rank's chunk only
//   scratch ring: full size by index, but a chunk of it exists only between its writing step and its
//           last reader, so the executor needs few slots. The others: chunk c of rank r's
//           contribution is number r * chunk_count + c, and behind all those stands a partial result
//           of every chunk: partial_chunk(plan, c)
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
  reduce,          // destination = combine(source, operand)
};

// The k-th send of rank a to rank b meets the k-th receive(_reduce) of b from a.
struct Step {
  StepKind kind = StepKind::send;
  Rank peer{-1};           // not for copy and reduce
  Slice source{};          // send, copy, receive_reduce, reduce
  Slice operand{};         // reduce
  Slice destination{};     // receive, receive_reduce, copy, reduce
  bool peer_first = true;  // receive_reduce: combine(peer, own) or combine(own, peer)
  bool completes =
      false;  // receive_reduce, reduce: the result holds every rank's contribution (averages divide here)
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

// Numbers in scratch, see Buffer.
constexpr std::uint32_t contributed_chunk(const Plan& plan, int rank, std::uint32_t chunk) {
  return static_cast<std::uint32_t>(rank) * plan.chunk_count + chunk;
}
constexpr std::uint32_t partial_chunk(const Plan& plan, std::uint32_t chunk) {
  return contributed_chunk(plan, plan.group_size, chunk);
}
constexpr std::uint32_t scratch_chunks(const Plan& plan) { return partial_chunk(plan, plan.chunk_count); }

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
