// One end of an RC ping: a queue pair on one device, with memory to send from and to
// receive into.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/time.h"
#include "verbs/verbs.h"

namespace beeline::doctor::peer {

inline constexpr std::uint32_t rc_write_bytes = 16384, rc_send_bytes = 64;

class RcEnd {
 public:
  static beeline::Result<RcEnd> create(verbs::Provider& provider, const std::string& device,
                                       const IpAddress& gid);

  // What the other end must know, and connecting with what it told.
  nlohmann::json info() const;
  beeline::Result<void> connect(const nlohmann::json& peer);

  beeline::Result<void> post_receive();
  // WRITE and SEND of a pattern; waits until the peer acknowledged both. An error is what
  // the completion says, in words.
  beeline::Result<void> ping(std::uint64_t seed, Duration timeout);
  // Waits for the SEND and compares every byte of both.
  beeline::Result<void> check(std::uint64_t seed, Duration timeout);

 private:
  struct Peer {
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
  };
  beeline::Result<void> wait(int completions, Duration timeout);
  std::byte* source() { return memory_.data(); }
  std::byte* sink() { return memory_.data() + rc_write_bytes + rc_send_bytes; }

  verbs::Provider* provider_ = nullptr;
  std::string device_;
  verbs::GidChoice gid_;
  std::uint32_t mtu_bytes_ = 1024, psn_ = 0;
  std::vector<std::byte> memory_;
  verbs::Context context_;
  verbs::ProtectionDomain pd_;
  verbs::MemoryRegion region_;
  verbs::CompletionQueue cq_;
  verbs::QueuePair qp_;
  Peer peer_;
};

}  // namespace beeline::doctor::peer
