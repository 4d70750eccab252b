// Runs collective plans over verbs for one group: one reliable connection per pair of
// ranks, adverts with fingerprints, data by RDMA WRITE straight into place.
//
// Calls run in the order of submission. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "coll/plan.h"
#include "exec/control.h"
#include "verbs/verbs.h"

namespace beeline::exec {

enum class DType : std::uint8_t { float32, bfloat16, int32, int64, uint8 };
enum class RedOp : std::uint8_t { sum, max, avg };
std::size_t element_bytes(DType dtype);
std::string_view name(DType dtype);
std::string_view name(RedOp op);

// One collective call. Counts are elements, as in beeline.h; buffers too.
struct Call {
  coll::Operation operation = coll::Operation::barrier;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  DType dtype = DType::uint8;
  RedOp redop = RedOp::sum;
  Rank root{0};
};

// The outcome of a call, shared between the caller and whoever drives the communicator.
class Work {
 public:
  using Done = std::function<void(const Result<void>&)>;
  virtual ~Work() = default;
  virtual bool done() const = 0;
  // Blocks until done, or for `timeout` (then Errc::timed_out, the call runs on). The thread
  // that waits drives the communicator meanwhile, so callbacks of other calls may run on it.
  virtual Result<void> wait(Duration timeout) = 0;
  // Called once, from whichever thread drives, or at once when already done.
  virtual void on_done(Done callback) = 0;
};

struct Stats {
  std::uint64_t operations = 0, bytes_sent = 0, bytes_received = 0;
  Duration busy{};  // at least one call under way
};

struct CommunicatorOptions {
  Rank rank{0};
  int size = 1;
  std::string name = "default";
  Duration operation_timeout = 30min;
  Duration warn_after = 30s;
  Duration connect_timeout = 60s;
  std::uint32_t piece_bytes = 256 * 1024;  // chunks travel in pieces of this size; the same on all ranks
};

class Communicator {
 public:
  // Connects to all peers over `context`. `provider`, `context` and `control` outlive it.
  static Result<std::unique_ptr<Communicator>> create(const CommunicatorOptions& options,
                                                      verbs::Provider& provider, ibv_context* context,
                                                      const verbs::GidChoice& gid, Control& control);
  virtual ~Communicator() = default;  // ends calls under way with Errc::aborted, joins its thread

  virtual Result<std::shared_ptr<Work>> submit(const Call& call) = 0;
  // The same, and waits for it: on this thread throughout, when nothing else is under way.
  virtual Result<void> run(const Call& call) = 0;
  virtual void abort(std::string reason) = 0;  // here and everywhere
  virtual Stats stats() const = 0;
};

}  // namespace beeline::exec
