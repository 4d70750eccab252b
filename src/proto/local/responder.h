// The responding half of a queue pair on the local lane: executes what the other side puts into its
// ring, by the same rules as what comes over the wire (ops/executor.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "base/time.h"
#include "proto/local/requester.h"
#include "proto/local/shared_pair.h"
#include "proto/ops/operations.h"

namespace beeline::proto::local {

class Responder {
 public:
  // Bytes that are copied directly, or requests that are executed, at most in one step: so long are the
  // locks held.
  static constexpr std::uint32_t step_bytes = 128 * 1024;
  static constexpr int step_requests = 32;

  Responder(Operations& operations, Direction& requests, const SideLine& theirs, SideLine& ours,
            PeerMemory& peer);

  // Executes what is there. Answers that the other side gave before it asked are taken first: a program that
  // sees a message in reply to one of its own sees that one's completion before, as ACKs go before what
  // follows (perftest's -e counts on it). True if the other side has something new to see.
  bool run(TimePoint now, Requester& own);
  // Whether run() would find something: from any thread, as a hint.
  bool has_request() const;
  // A receive request was posted: whoever waits for one need not wait longer. True if somebody does.
  bool note_receive() {
    if (hint_wait_.load(std::memory_order_relaxed) != Wait::receive) return false;
    hint_wait_.store(Wait::request, std::memory_order_relaxed);
    return true;
  }
  // Whether run() has more to do at once.
  bool has_more() const { return more_; }

  TimePoint next_timeout() const;
  std::uint64_t bytes_received() const { return bytes_received_; }
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  // A slot's header, copied out once.
  struct Request {
    WrOpcode opcode{};
    std::uint8_t flags = 0;
    Carry carry{};
    std::uint8_t rnr_retry = 0;
    std::uint32_t length = 0, bytes = 0;
    std::uint64_t remote_address = 0;
    Key rkey{};
    std::uint32_t immediate = 0;
    std::array<std::byte, header_payload> payload{};
  };
  enum class Outcome : std::uint8_t { done, unfinished, waits, ended };

  static constexpr std::size_t index(std::uint64_t n) { return static_cast<std::size_t>(n % slot_count); }

  bool take_request();
  Outcome serve(TimePoint now);
  Outcome serve_data(TimePoint now);
  Outcome serve_sourced(TimePoint now);
  Outcome serve_placed(TimePoint now);
  Outcome serve_read();
  Outcome offer();
  Outcome serve_atomic();
  Outcome obey(const Verdict& verdict, TimePoint now);
  Outcome wait_for_receive(TimePoint now);
  Outcome end(Answer answer);
  Fragment fragment() const;
  void stop_waiting();

  Operations& operations_;
  Direction& requests_;
  const SideLine& theirs_;
  SideLine& ours_;
  PeerMemory& peer_;

  std::uint64_t executed_ = 0;
  bool taken_ = false;  // request_ is request number executed_
  Request request_;
  bool ended_ = false;  // a request failed: nothing that follows is executed
  bool more_ = false;

  // Of a request whose bytes are fetched from the other process.
  std::array<Source, max_sge> sources_{};
  std::uint32_t fetched_ = 0;
  // Of a READ whose bytes are offered.
  bool offered_ = false;
  std::uint64_t offered_address_ = 0;

  bool waits_ = false;  // for a receive request
  TimePoint wait_until_{};
  std::uint8_t not_ready_ = 0;

  // For has_request(): which request is next, and what for it waits.
  enum class Wait : std::uint8_t { request, receive, fetching, nothing };
  std::atomic<std::uint64_t> hint_executed_{0};
  std::atomic<Wait> hint_wait_{Wait::request};
  std::uint64_t bytes_received_ = 0, bytes_read_ = 0;  // of payload; by the other side's READs
};

}  // namespace beeline::proto::local
