// Where the elements of a call lie: chunks, pieces of chunks, and addresses.
#pragma once

#include <algorithm>
#include <cstddef>

#include "coll/plan.h"
#include "exec/communicator.h"

namespace beeline::exec {

class Geometry {
 public:
  Geometry() = default;
  Geometry(const Call& call, const coll::Plan& plan, std::uint32_t piece_bytes)
      : element_bytes_(element_bytes(call.dtype)),
        chunks_(plan.chunk_count),
        piece_elements_(std::max<std::size_t>(piece_bytes / element_bytes_, 1)) {
    const auto size = static_cast<std::size_t>(plan.group_size);
    using coll::Operation;
    const bool blocks =
        call.operation == Operation::reduce_scatter || call.operation == Operation::all_gather;
    total_ = call.operation == Operation::barrier ? 0 : blocks ? size * call.count : call.count;
    const coll::Range own =
        coll::chunk_range(total_, chunks_, static_cast<std::uint32_t>(plan.rank.value) % chunks_);
    input_ = call.operation == Operation::all_gather ? own : coll::Range{0, total_};
    output_ = call.operation == Operation::reduce_scatter ? own : coll::Range{0, total_};
    const std::size_t longest = coll::chunk_range(total_, chunks_, 0).size();
    pieces_ = static_cast<std::uint32_t>(
        std::max<std::size_t>((longest + piece_elements_ - 1) / piece_elements_, 1));
  }

  std::uint32_t pieces() const { return pieces_; }
  std::size_t input_bytes() const { return input_.size() * element_bytes_; }
  std::size_t output_bytes() const { return output_.size() * element_bytes_; }

  // The elements of one piece of one chunk; none when the chunk is shorter than that.
  coll::Range elements(std::uint32_t piece, std::uint32_t chunk) const {
    const coll::Range whole = coll::chunk_range(total_, chunks_, chunk);
    const std::size_t begin = std::min(whole.begin + piece * piece_elements_, whole.end);
    return {begin, std::min(begin + piece_elements_, whole.end)};
  }
  std::uint32_t bytes(coll::Range range) const {
    return static_cast<std::uint32_t>(range.size() * element_bytes_);
  }
  // Offsets into the caller's buffers, in bytes.
  std::size_t input_offset(coll::Range range) const { return (range.begin - input_.begin) * element_bytes_; }
  std::size_t output_offset(coll::Range range) const {
    return (range.begin - output_.begin) * element_bytes_;
  }

 private:
  std::size_t element_bytes_ = 1;
  std::uint32_t chunks_ = 1;
  std::size_t piece_elements_ = 1;
  std::size_t total_ = 0;
  coll::Range input_, output_;  // what the caller's buffers hold
  std::uint32_t pieces_ = 1;
};

}  // namespace beeline::exec
