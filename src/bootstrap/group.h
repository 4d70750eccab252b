// Who is in the group, and the TCP connections between its ranks that stay open: they
// name a rank that dies (its kernel closes them) and carry abort messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"

namespace beeline::bootstrap {

// A key-value store that all ranks reach (PyTorch's, or the one that meet_at runs on rank 0).
// After a get that timed out it is not used again: PyTorch's older clients are out of step then.
class Store {
 public:
  virtual ~Store() = default;
  virtual Result<void> set(const std::string& key, Bytes value) = 0;
  virtual Result<std::vector<std::byte>> get(const std::string& key, Duration timeout) = 0;  // waits for it
};

struct GroupOptions {
  Rank rank{0};
  int size = 1;
  std::string name = "default";  // prefix of the store's keys
  Duration timeout = 60s;        // until all ranks are connected
};

struct PeerFailure {
  Rank rank{-1};
  Error error;  // peer_lost, or what the peer reported
};

// Thread-safe, and without a thread of its own: what peers send is read in poll_failure and all_gather.
class Group {
 public:
  // Returns when every rank is connected to every other; the error names the ranks that did not come.
  static Result<std::unique_ptr<Group>> meet(const GroupOptions& options, Store& store);
  // "host:port"; rank 0 listens there until the group is complete. One group at a time can meet
  // there; the next one waits for its rank 0.
  static Result<std::unique_ptr<Group>> meet_at(const GroupOptions& options, const std::string& host_port);
  virtual ~Group() = default;  // an orderly goodbye: peers do not take it for a death

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Up to 16 MiB per rank. A rank that is gone, has left or reported a failure is an error at
  // once; a late one, at the timeout. After an error the group is good for failures only.
  virtual Result<std::vector<std::vector<std::byte>>> all_gather(Bytes mine, Duration timeout) = 0;
  virtual void broadcast_failure(const Error& error) = 0;
  // The first failure of a peer, again on every call. A goodbye alone is none.
  virtual std::optional<PeerFailure> poll_failure() = 0;
  virtual int wait_descriptor() const = 0;
  virtual std::string describe(Rank rank) const = 0;  // "rank 3 (pid 4711 on node-a)"
  // In the child of a fork: closes the connections without a word, so that the parent's death is
  // still seen. The only call that takes no lock; the group is of no use to the child afterwards.
  virtual void abandon_after_fork() = 0;
};

// Rank, size and meeting point from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as torchrun
// sets them. `get` reads a variable. The error names the missing or bad one. With
// TORCHELASTIC_USE_AGENT_STORE=True torchrun's own store occupies MASTER_PORT: the group
// meets at the port after it.
struct Environment {
  Rank rank{0};
  int size = 1;
  std::string host_port;
};
Result<Environment> from_torchrun(const std::function<std::optional<std::string>(std::string_view)>& get);

}  // namespace beeline::bootstrap
