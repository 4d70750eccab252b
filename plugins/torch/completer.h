// The thread that ends works: copies results out, completes futures and runs what is
// chained to them. That may take the GIL and any time, so it must not happen on
// libbeeline's progress thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <thread>

namespace beeline::pytorch {

class WorkBeeline;

class Completer {
 public:
  Completer();
  ~Completer();  // stop()
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;

  // Waits while very many works are under way: the library refuses calls beyond some number,
  // PyTorch's users expect to be slowed down instead.
  void await_room();
  // A work has begun: it will be pushed, or settled, when its last call is done.
  void expect();
  // From any thread, at most once for each expect(); never waits for a work to end.
  void push(c10::intrusive_ptr<WorkBeeline> work);
  // Instead of push(): whoever calls it completes the work.
  void settle();
  // Whether works have begun that are not pushed yet.
  bool expecting() const;
  // Ends every work pushed so far, then the thread. The caller does not hold the GIL.
  void stop();
  // After fork the thread exists in the parent only.
  void forget();

 private:
  struct Queue;
  static void run(const std::shared_ptr<Queue>& queue);

  std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace beeline::pytorch
