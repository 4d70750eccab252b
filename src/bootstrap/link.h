// One control connection to a peer, and what came over it.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "base/ids.h"
#include "bootstrap/frame.h"

namespace beeline::bootstrap {

constexpr std::uint32_t max_contribution_bytes = 16u << 20;  // of one rank to one all_gather
constexpr std::size_t max_failure_text_bytes = 4096;

// Who a rank is, for messages.
struct Identity {
  std::uint32_t pid = 0;
  std::string host;
};

class Link {
 public:
  Link(Descriptor fd, Identity identity);

  int fd() const { return fd_.get(); }
  const Identity& identity() const { return identity_; }

  // Sending: queue, then flush when convenient.
  void send_contribution(Bytes mine);
  void send_failure(const Error& error);
  void send_goodbye();
  void flush();
  bool has_unsent() const { return !outbox_.empty() && open(); }

  // Takes what has come; never blocks. When the connection has ended the descriptor waits for drop().
  void pump();
  std::optional<std::vector<std::byte>> take_contribution();

  // What the peer reported, in its words.
  const std::optional<Error>& reported() const { return reported_; }
  // The connection ended without a goodbye.
  bool broken() const { return broken_; }
  bool said_goodbye() const { return goodbye_; }
  bool open() const { return !closed_; }

  // For contributions that exceed what a stopped peer's kernel takes.
  void expect_slow_reader(bool slow) { tolerate_closed_window(fd_.get(), slow); }
  // Closes the descriptor without a word (also in the child of a fork).
  void drop() { fd_.reset(); }

 private:
  void handle(Frame frame);
  void end(bool as_broken);

  Descriptor fd_;
  Identity identity_;
  FrameReader reader_;
  Outbox outbox_;
  // At most two: a peer sends the next contribution when it has got ours for this one.
  std::deque<std::vector<std::byte>> contributions_;
  std::optional<Error> reported_;
  bool goodbye_ = false, broken_ = false, closed_ = false;
};

}  // namespace beeline::bootstrap
