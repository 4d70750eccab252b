#include "coll/builder.h"
#include "coll/gathering.h"

namespace beeline::coll {
namespace {

// The reducing half of the ring. Chunk c starts at rank c+1, travels right and collects
// each rank's part on the way: ((x[c+1] + x[c+2]) + …) + x[c], complete at rank c.
// Partial sums live in `partial`, the complete chunk goes to the output.
struct Reduced {
  std::vector<std::uint32_t> sends;  // step that sent chunk rank-1-s
  std::uint32_t complete = 0;        // step that completed this rank's chunk
};
Reduced ring_reduce(Builder& build, Buffer partial) {
  Reduced result;
  std::uint32_t previous = 0;
  for (int s = 0; s + 1 < build.size(); ++s) {
    const std::uint32_t leaving = build.chunk(build.rank() - 1 - s),
                        arriving = build.chunk(build.rank() - 2 - s);
    const bool completes = s + 2 == build.size();
    result.sends.push_back(s == 0 ? build.send(build.right(), {Buffer::input, leaving}, {})
                                  : build.send(build.right(), {partial, leaving}, {previous}));
    previous = build.receive_reduce(build.left(), {Buffer::input, arriving},
                                    {completes ? Buffer::output : partial, arriving}, completes);
  }
  result.complete = previous;
  return result;
}

// The gathering half: every rank passes on what arrived last, starting with its own chunk.
// `freed[s]` must be complete before chunk rank-1-s may be overwritten.
void ring_gather(Builder& build, Slice own, const std::vector<std::uint32_t>& own_ready,
                 const std::vector<std::uint32_t>& freed) {
  std::uint32_t previous = 0;
  for (int s = 0; s + 1 < build.size(); ++s) {
    const std::uint32_t leaving = build.chunk(build.rank() - s), arriving = build.chunk(build.rank() - 1 - s);
    if (s == 0)
      build.send(build.right(), own, own_ready);
    else
      build.send(build.right(), {Buffer::output, leaving}, {previous});
    std::vector<std::uint32_t> after;
    if (!freed.empty()) after.push_back(freed[static_cast<std::size_t>(s)]);
    previous = build.receive(build.left(), {Buffer::output, arriving}, std::move(after));
  }
}

void all_reduce(Builder& build) {
  const Slice own{Buffer::output, build.chunk(build.rank())};
  if (build.size() == 1) {
    build.copy({Buffer::input, 0}, own);
    return;
  }
  const Reduced reduced = ring_reduce(build, Buffer::output);
  ring_gather(build, own, {reduced.complete}, reduced.sends);
}

void reduce_scatter(Builder& build) {
  if (build.size() == 1) build.copy({Buffer::input, 0}, {Buffer::output, 0});
  ring_reduce(build, Buffer::scratch);
}

void all_gather(Builder& build) {
  const std::uint32_t own = build.chunk(build.rank());
  build.copy({Buffer::input, own}, {Buffer::output, own});
  ring_gather(build, {Buffer::input, own}, {}, {});
}

// A chain along the ring that begins at the root.
void broadcast(Builder& build, Rank root) {
  const bool is_root = build.rank() == root.value, is_last = build.right() == root;
  std::vector<std::uint32_t> arrived;
  if (is_root)
    build.copy({Buffer::input, 0}, {Buffer::output, 0});
  else
    arrived.push_back(build.receive(build.left(), {Buffer::output, 0}, {}));
  if (!is_last) build.send(build.right(), {is_root ? Buffer::input : Buffer::output, 0}, arrived);
}

// No ring, but a dissemination: in round k every rank tells the one 2^k places to the right that
// it, and all it has heard of, are there. ceil(log2 n) rounds; the messages are empty.
void barrier(Builder& build) {
  std::vector<std::uint32_t> heard;
  for (int distance = 1; distance < build.size(); distance *= 2) {
    build.send(build.at(distance), {}, heard);
    heard.push_back(build.receive(build.at(-distance), {}, {}));
  }
}

void ring(Builder& build) {
  switch (build.plan().operation) {
    case Operation::all_reduce:
      return all_reduce(build);
    case Operation::reduce_scatter:
      return reduce_scatter(build);
    case Operation::all_gather:
      return all_gather(build);
    case Operation::broadcast:
      return broadcast(build, build.plan().root);
    case Operation::barrier:
      return barrier(build);
  }
}

}  // namespace

std::string_view name(Operation operation) {
  switch (operation) {
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::all_gather:
      return "all_gather";
    case Operation::broadcast:
      return "broadcast";
    case Operation::barrier:
      return "barrier";
  }
  return "unknown operation";
}

std::string_view name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::ring:
      return "ring";
    case Algorithm::direct:
      return "direct";
    case Algorithm::dissemination:
      return "dissemination";
  }
  return "unknown algorithm";
}

Result<Plan> make_plan(Operation operation, Algorithm algorithm, int group_size, Rank rank, Rank root) {
  if (algorithm > Algorithm::dissemination)
    return fail(Errc::unsupported, "there is no such collective algorithm");
  if (operation > Operation::barrier) return fail(Errc::unsupported, "there is no such collective operation");
  if (group_size < 1)
    return fail(Errc::invalid_argument, "a group has at least one rank, not {}", group_size);
  const auto outside = [&](Rank r) { return r.value < 0 || r.value >= group_size; };
  if (outside(rank))
    return fail(Errc::invalid_argument, "rank {} is not in a group of {}", rank.value, group_size);
  if (operation == Operation::broadcast && outside(root))
    return fail(Errc::invalid_argument, "broadcast from root {}: the group has ranks 0 to {}", root.value,
                group_size - 1);

  const bool whole = operation == Operation::broadcast || operation == Operation::barrier;
  Builder build(operation, group_size, rank, operation == Operation::broadcast ? root : Rank{0},
                whole ? 1u : static_cast<std::uint32_t>(group_size));
  if (algorithm == Algorithm::ring)
    ring(build);
  else
    gathering(build, algorithm);
  return build.take();
}

}  // namespace beeline::coll
