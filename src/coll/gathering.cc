#include "coll/gathering.h"

#include <algorithm>
#include <numeric>

namespace beeline::coll {
namespace {

// One message out and one in. `carried` ranks' contributions leave, beginning with this rank's own and
// going right; those of `carried` ranks arrive, beginning with the sender's.
struct Round {
  int distance = 1;
  Rank to, from;
  int carried = 1;
};

std::vector<Round> rounds_of(const Builder& build, Algorithm algorithm) {
  std::vector<Round> rounds;
  const int size = build.size();
  if (algorithm == Algorithm::direct)
    for (int distance = 1; distance < size; ++distance)
      rounds.push_back({distance, build.at(-distance), build.at(distance), 1});
  else
    for (int distance = 1; distance < size; distance *= 2)
      rounds.push_back(
          {distance, build.at(-distance), build.at(distance), std::min(distance, size - distance)});
  return rounds;
}

class Gathering {
 public:
  Gathering(Builder& build, Algorithm algorithm)
      : build_(build),
        operation_(build.plan().operation),
        is_direct_(algorithm == Algorithm::direct),
        rounds_(rounds_of(build, algorithm)),
        arrived_(scratch_chunks(build.plan())),
        left_(scratch_chunks(build.plan())) {}

  // Directly, nothing holds a message back, so all of them are listed first.
  void barrier() {
    if (is_direct_)
      for (const Round& round : rounds_) build_.send(round.to, {}, {});
    std::vector<std::uint32_t> heard;
    for (const Round& round : rounds_) {
      if (!is_direct_) build_.send(round.to, {}, heard);
      heard.push_back(build_.receive(round.from, {}, {}));
    }
  }

  void move_data() {
    if (has_own_output()) build_.copy({Buffer::input, own_chunk()}, {Buffer::output, own_chunk()});
    for (std::size_t k = 0; k < rounds_.size(); ++k) {
      const Round& round = rounds_[k];
      for (int i = 0; i < round.carried; ++i) send(round.to, build_.at(i).value, k);
      for (int i = 0; i < round.carried; ++i) receive(round.from, build_.at(round.distance + i).value, k);
    }
    if (operation_ == Operation::reduce_scatter) combine(own_chunk());
    if (operation_ != Operation::all_reduce) return;
    for (std::uint32_t chunk = 0; chunk < build_.plan().chunk_count; ++chunk) combine(chunk);
  }

 private:
  bool reduces() const {
    return operation_ == Operation::all_reduce || operation_ == Operation::reduce_scatter;
  }
  bool has_own_output() const {
    return operation_ == Operation::all_gather || build_.size() == 1 ||
           (operation_ == Operation::broadcast && build_.plan().root.value == build_.rank());
  }
  std::uint32_t own_chunk() const {
    return operation_ == Operation::broadcast ? 0 : build_.chunk(build_.rank());
  }

  // Which chunks of a contribution rank `reader` needs when it arrives in `round`: for itself, and to
  // pass them on later.
  std::vector<std::uint32_t> chunks_for(int reader, int contributor, std::size_t round) const {
    switch (operation_) {
      case Operation::all_gather:
        return {static_cast<std::uint32_t>(contributor)};
      case Operation::broadcast:
        return contributor == build_.plan().root.value ? std::vector<std::uint32_t>{0}
                                                       : std::vector<std::uint32_t>{};
      case Operation::reduce_scatter:
        return readers(reader, contributor, round);
      default:
        break;
    }
    std::vector<std::uint32_t> all(build_.plan().chunk_count);
    std::iota(all.begin(), all.end(), 0u);
    return all;
  }
  // Of a scattered contribution every rank reads the chunk with its own number. `reader`, and all whom
  // it reaches through that one.
  std::vector<std::uint32_t> readers(int reader, int contributor, std::size_t round) const {
    std::vector<std::uint32_t> all{build_.chunk(reader)};
    if (is_direct_) return all;
    const int size = build_.size(), offset = (contributor - reader + size) % size;
    for (std::size_t later = round + 1; later < rounds_.size(); ++later) {
      if (offset >= rounds_[later].carried) continue;
      const auto more = readers((reader + size - rounds_[later].distance) % size, contributor, later);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  // Where a chunk of a contribution lies here.
  Slice place(int contributor, std::uint32_t chunk) const {
    if (contributor == build_.rank()) return {Buffer::input, chunk};
    if (!reduces()) return {Buffer::output, chunk};
    return {Buffer::scratch, contributed_chunk(build_.plan(), contributor, chunk)};
  }

  std::vector<std::uint32_t>& arrival(int contributor, std::uint32_t chunk) {
    return arrived_[contributed_chunk(build_.plan(), contributor, chunk)];
  }
  std::vector<std::uint32_t>& departures(int contributor, std::uint32_t chunk) {
    return left_[contributed_chunk(build_.plan(), contributor, chunk)];
  }

  void send(Rank to, int contributor, std::size_t round) {
    for (const std::uint32_t chunk : chunks_for(to.value, contributor, round))
      departures(contributor, chunk)
          .push_back(build_.send(to, place(contributor, chunk), arrival(contributor, chunk)));
  }
  void receive(Rank from, int contributor, std::size_t round) {
    for (const std::uint32_t chunk : chunks_for(build_.rank(), contributor, round))
      arrival(contributor, chunk) = {build_.receive(from, place(contributor, chunk), {})};
  }

  // ((x[c+1] + x[c+2]) + …) + x[c], as on the ring. The output may be the input: it is written last,
  // when this rank's own part has been read and sent.
  void combine(std::uint32_t chunk) {
    const int size = build_.size();
    const auto contributor = [&](int i) { return (static_cast<int>(chunk) + i) % size; };
    const Slice partial{Buffer::scratch, partial_chunk(build_.plan(), chunk)};
    Slice left = place(contributor(1), chunk);
    std::vector<std::uint32_t> left_ready = arrival(contributor(1), chunk);
    for (int i = 2; i <= size; ++i) {
      const bool completes = i == size;
      std::vector<std::uint32_t> after = left_ready;
      const auto& right_ready = arrival(contributor(i), chunk);
      after.insert(after.end(), right_ready.begin(), right_ready.end());
      if (completes) {
        const auto& sent = departures(build_.rank(), chunk);
        after.insert(after.end(), sent.begin(), sent.end());
      }
      left_ready = {build_.reduce(left, place(contributor(i), chunk),
                                  completes ? Slice{Buffer::output, chunk} : partial, completes,
                                  std::move(after))};
      left = partial;
    }
  }

  Builder& build_;
  const Operation operation_;
  const bool is_direct_;
  const std::vector<Round> rounds_;
  std::vector<std::vector<std::uint32_t>> arrived_, left_;  // steps, by contribution and chunk
};

}  // namespace

void gathering(Builder& build, Algorithm algorithm) {
  Gathering steps(build, algorithm);
  if (build.plan().operation == Operation::barrier)
    steps.barrier();
  else
    steps.move_data();
}

}  // namespace beeline::coll
