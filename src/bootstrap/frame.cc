#include "bootstrap/frame.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace beeline::bootstrap {
namespace {

constexpr std::uint16_t magic = 0xBEE1;
constexpr std::size_t piece_bytes = std::size_t{64} * 1024;

// How many bytes came; 0 with `outcome` would_block or closed.
Result<std::size_t> receive_some(int fd, std::byte* to, std::size_t room, ReadOutcome& outcome) {
  for (;;) {
    const auto got = ::recv(fd, to, room, 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) {
      outcome = ReadOutcome::closed;
      return std::size_t{0};
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      outcome = ReadOutcome::would_block;
      return std::size_t{0};
    }
    return fail_errno(errno, "the connection broke");
  }
}

void append_frame(std::vector<std::byte>& out, std::uint8_t type, Bytes body) {
  std::array<std::byte, frame_header_bytes> header{};
  store_be16(header.data(), magic);
  store_u8(header.data() + 2, type);
  store_be32(header.data() + 4, static_cast<std::uint32_t>(body.size()));
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), body.begin(), body.end());
}

}  // namespace

std::vector<std::byte> encode_frame(std::uint8_t type, Bytes body) {
  std::vector<std::byte> out;
  append_frame(out, type, body);
  return out;
}

Result<ReadOutcome> FrameReader::read(int fd, Frame& out) {
  BEELINE_TRY(ReadOutcome outcome, read_header(fd));
  if (outcome != ReadOutcome::frame) return outcome;
  BEELINE_TRY(outcome, read_body(fd));
  if (outcome != ReadOutcome::frame) return outcome;
  out = std::exchange(frame_, Frame{});
  header_have_ = 0;
  return ReadOutcome::frame;
}

Result<ReadOutcome> FrameReader::read_header(int fd) {
  if (header_have_ == header_.size()) return ReadOutcome::frame;
  while (header_have_ < header_.size()) {
    ReadOutcome outcome = ReadOutcome::frame;
    BEELINE_TRY(const std::size_t got,
                receive_some(fd, header_.data() + header_have_, header_.size() - header_have_, outcome));
    if (got == 0) return outcome;
    header_have_ += got;
  }
  body_bytes_ = load_be32(header_.data() + 4);
  if (load_be16(header_.data()) != magic || load_u8(header_.data() + 3) != 0)
    return fail(Errc::protocol, "the far end does not speak Beeline's protocol");
  if (body_bytes_ > max_body_bytes_)
    return fail(Errc::protocol, "a message of {} bytes where {} are allowed", body_bytes_, max_body_bytes_);
  frame_.type = load_u8(header_.data() + 2);
  return ReadOutcome::frame;
}

Result<ReadOutcome> FrameReader::read_body(int fd) {
  while (frame_.body.size() < body_bytes_) {
    const std::size_t have = frame_.body.size(), room = std::min(piece_bytes, body_bytes_ - have);
    frame_.body.resize(have + room);
    ReadOutcome outcome = ReadOutcome::frame;
    const auto got = receive_some(fd, frame_.body.data() + have, room, outcome);
    frame_.body.resize(have + got.value_or(0));
    if (!got) return tl::unexpected(got.error());
    if (*got == 0) return outcome;
  }
  return ReadOutcome::frame;
}

void Outbox::add(std::uint8_t type, Bytes body) {
  if (empty()) {
    bytes_.clear();
    sent_ = 0;
  }
  append_frame(bytes_, type, body);
}

Result<void> Outbox::flush(int fd) {
  while (!empty()) {
    const auto sent = ::send(fd, bytes_.data() + sent_, bytes_.size() - sent_, MSG_NOSIGNAL);
    if (sent >= 0)
      sent_ += static_cast<std::size_t>(sent);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return {};
    else if (errno != EINTR)
      return fail_errno(errno, "the connection broke");
  }
  return {};
}

Result<Frame> read_frame(int fd, FrameReader& reader, const Deadline& deadline) {
  for (;;) {
    Frame frame;
    BEELINE_TRY(const ReadOutcome outcome, reader.read(fd, frame));
    if (outcome == ReadOutcome::frame) return frame;
    if (outcome == ReadOutcome::closed) return fail(Errc::peer_lost, "the far end closed the connection");
    BEELINE_TRY(const bool ready, wait_for(fd, POLLIN, deadline));
    // A far end that drips single bytes is always ready.
    if (!ready || deadline.passed()) return fail(Errc::timed_out, "no answer in time");
  }
}

Result<void> write_frame(int fd, std::uint8_t type, Bytes body, const Deadline& deadline) {
  Outbox outbox;
  outbox.add(type, body);
  for (;;) {
    BEELINE_TRY_VOID(outbox.flush(fd));
    if (outbox.empty()) return {};
    BEELINE_TRY(const bool ready, wait_for(fd, POLLOUT, deadline));
    if (!ready || deadline.passed()) return fail(Errc::timed_out, "the far end does not read in time");
  }
}

}  // namespace beeline::bootstrap
