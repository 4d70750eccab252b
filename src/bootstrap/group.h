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

// Thread-safe.
class Group {
 public:
  static Result<std::unique_ptr<Group>> meet(const GroupOptions& options, Store& store);
  // "host:port"; rank 0 listens there.
  static Result<std::unique_ptr<Group>> meet_at(const GroupOptions& options, const std::string& host_port);
  virtual ~Group() = default;  // an orderly goodbye: peers do not take it for a death

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  virtual Result<std::vector<std::vector<std::byte>>> all_gather(Bytes mine, Duration timeout) = 0;
  virtual void broadcast_failure(const Error& error) = 0;
  virtual std::optional<PeerFailure> poll_failure() = 0;
  virtual int wait_descriptor() const = 0;
  virtual std::string describe(Rank rank) const = 0;  // "rank 3 (pid 4711 on node-a)"
};

// Rank, size and meeting point from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as torchrun
// sets them. `get` reads a variable. The error names the missing one.
struct Environment {
  Rank rank{0};
  int size = 1;
  std::string host_port;
};
Result<Environment> from_torchrun(const std::function<std::optional<std::string>(std::string_view)>& get);

}  // namespace beeline::bootstrap
