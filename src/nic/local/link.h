// A connection with another process of this host and user: for asking, for waking, and for copying from
// its memory.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/descriptor.h"
#include "base/result.h"
#include "nic/local/messages.h"
#include "nic/local/shared_memory.h"
#include "proto/local/shared_pair.h"

namespace beeline::nic::local {

// Shared by both ends. A mad peer can keep us from being woken by it, or wake us in vain.
struct LinkPage {
  struct alignas(64) Side {
    std::atomic<std::uint32_t> sleeps{0};  // wake me when there is something new; whoever does lowers it
    std::atomic<std::uint32_t> reads{0};   // I can copy from the other's memory
  };
  std::array<Side, 2> sides;
};

// A number that only this process knows, and where it lies.
struct Witness {
  const std::uint64_t* number = nullptr;
};

class Link final : public proto::local::PeerMemory {
 public:
  // `socket` is connected; `peer`: the process at its other end, 0 when it cannot be named here.
  Link(Descriptor socket, pid_t peer);

  // Says hello first, and brings the page.
  Result<void> open(const Witness& witness);
  // After a hello from the other side. The end that did not open the link gets the page with it, and says
  // hello, too.
  Result<void> take_hello(const Message& hello, Descriptor page, const Witness& witness);
  bool is_open() const { return static_cast<bool>(page_); }

  int socket() const { return socket_.get(); }
  int process() const { return process_.get(); }  // readable when it ends; -1 when it cannot be watched

  bool send(const Message& message, int file = -1) const;
  struct Received {
    Message message;
    Descriptor file;
  };
  enum class Status : std::uint8_t { received, nothing, ended };
  Status receive(Received& out) const;

  // Whether each side can copy from the other's memory.
  proto::local::Reach reach() const override;
  Copied read(std::uint64_t address, MutableBytes to) override;

  // Call it after something new can be seen: wakes the other process if it sleeps.
  void wake_peer();
  void set_sleeping(bool sleeps);

  void abandon();

 private:
  LinkPage& page() const { return *static_cast<LinkPage*>(page_.data()); }
  bool can_read_witness(const Message& hello) const;
  bool lives() const;

  Descriptor socket_, process_;
  pid_t peer_;
  SharedMemory page_;
  std::size_t side_ = 1;
};

}  // namespace beeline::nic::local
