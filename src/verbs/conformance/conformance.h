// One suite for every provider: what a verbs program may rely on, tested through the
// inline functions that such a program calls.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "verbs/verbs.h"

namespace beeline::verbs::conformance {

// A provider with whatever it stands on.
class Rig {
 public:
  virtual ~Rig() = default;
  virtual Provider& provider() = 0;
};

struct RigFactory {
  std::string name;
  std::function<Result<std::unique_ptr<Rig>>()> make;
};

// One end of a connection, with a registered buffer.
struct End {
  Provider* provider = nullptr;
  ibv_context* context = nullptr;
  GidChoice gid;
  ProtectionDomain pd;
  CompletionChannel channel;
  CompletionQueue cq;
  std::vector<std::byte> buffer;
  MemoryRegion region;
  QueuePair qp;

  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(buffer.data()) + offset;
  }
  ibv_sge sge(std::size_t offset, std::size_t bytes) const {
    return {address(offset), static_cast<std::uint32_t>(bytes), region->lkey};
  }
  int post_receive(std::uint64_t wr_id, std::size_t offset, std::size_t bytes);
  // Waits (at most 20 s) for `count` completions; fewer only when time is up.
  std::vector<ibv_wc> wait(std::size_t count);
};

struct EndOptions {
  std::size_t buffer_bytes = std::size_t{64} * 1024;
  QpOptions qp = {};
  int cq_depth = 256;
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
};

class Conformance : public testing::TestWithParam<RigFactory> {
 protected:
  void SetUp() override;

  Provider& provider() { return rig_->provider(); }
  End make_end(const EndOptions& options = {});
  // Random starting PSNs near the wrap-around, where mistakes live.
  void connect(End& a, End& b, const ConnectOptions& options = {});
  std::uint32_t mtu() const { return mtu_; }

  std::unique_ptr<Rig> rig_;
  Context a_context_, b_context_;
  std::uint32_t mtu_ = 0;
  int ends_ = 0;
};

// The parts of the suite; each provider instantiates all of them.
class Objects : public Conformance {};
class Messages : public Conformance {};
class Failures : public Conformance {};
class Events : public Conformance {};

// Fills with bytes that tell their place and `seed`.
void fill(std::vector<std::byte>& buffer, unsigned seed);
bool same(const End& a, std::size_t a_offset, const End& b, std::size_t b_offset, std::size_t bytes);

// A work request with one piece.
struct Request {
  ibv_sge sge{};
  ibv_send_wr wr{};
  Request(ibv_wr_opcode opcode, const End& from, std::size_t offset, std::size_t bytes);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  Request& to(const End& target, std::size_t offset = 0);
  Request& flags(unsigned more) {
    wr.send_flags |= more;
    return *this;
  }
  Request& id(std::uint64_t wr_id) {
    wr.wr_id = wr_id;
    return *this;
  }
  int post(End& end);
};

}  // namespace beeline::verbs::conformance
