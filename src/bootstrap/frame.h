// Messages on a byte stream: magic (16 bits), type (8), zero (8), length (32), body.
// The reader allocates as data arrives, never on the strength of a claimed length.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "bootstrap/socket.h"

namespace beeline::bootstrap {

struct Frame {
  std::uint8_t type = 0;
  std::vector<std::byte> body;
};

constexpr std::size_t frame_header_bytes = 8;
std::vector<std::byte> encode_frame(std::uint8_t type, Bytes body);

enum class ReadOutcome : std::uint8_t { frame, would_block, closed };

// Reads frames from a non-blocking descriptor, one after the other.
class FrameReader {
 public:
  explicit FrameReader(std::uint32_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  // protocol: the stream is no sequence of frames, or one is too long. io: the connection broke.
  Result<ReadOutcome> read(int fd, Frame& out);
  // Part of a frame has come.
  bool in_the_middle() const { return header_have_ > 0; }

 private:
  Result<ReadOutcome> read_header(int fd);
  Result<ReadOutcome> read_body(int fd);

  std::uint32_t max_body_bytes_;
  std::array<std::byte, frame_header_bytes> header_{};
  std::size_t header_have_ = 0;
  std::uint32_t body_bytes_ = 0;
  Frame frame_;
};

// What waits to be sent on a non-blocking descriptor.
class Outbox {
 public:
  void add(std::uint8_t type, Bytes body);
  bool empty() const { return sent_ == bytes_.size(); }
  std::size_t size() const { return bytes_.size() - sent_; }
  // Sends what fits. io: the connection broke.
  Result<void> flush(int fd);

 private:
  std::vector<std::byte> bytes_;
  std::size_t sent_ = 0;
};

// One frame, waited for. timed_out, io, protocol; a closed connection is peer_lost.
Result<Frame> read_frame(int fd, FrameReader& reader, const Deadline& deadline);
Result<void> write_frame(int fd, std::uint8_t type, Bytes body, const Deadline& deadline);

}  // namespace beeline::bootstrap
