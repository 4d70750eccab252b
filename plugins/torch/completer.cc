#include "completer.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "work.h"

namespace beeline::pytorch {

namespace {
constexpr std::size_t kMostUnderWay = 1024;
}

// Bounded by the works in flight: each is in here at most once.
struct Completer::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::condition_variable room;
  std::vector<c10::intrusive_ptr<WorkBeeline>> works;
  std::size_t expected = 0;
  bool stopping = false;
};

Completer::Completer() : queue_(std::make_shared<Queue>()), thread_(&Completer::run, queue_) {}

Completer::~Completer() { stop(); }

void Completer::await_room() {
  std::unique_lock lock(queue_->mutex);
  queue_->room.wait(lock, [this] { return queue_->expected < kMostUnderWay; });
}

void Completer::expect() {
  const std::lock_guard lock(queue_->mutex);
  ++queue_->expected;
}

bool Completer::expecting() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->expected > 0;
}

void Completer::push(c10::intrusive_ptr<WorkBeeline> work) {
  {
    const std::lock_guard lock(queue_->mutex);
    --queue_->expected;
    queue_->works.push_back(std::move(work));
  }
  queue_->changed.notify_one();
  queue_->room.notify_one();
}

void Completer::settle() {
  {
    const std::lock_guard lock(queue_->mutex);
    --queue_->expected;
  }
  queue_->room.notify_one();
}

void Completer::stop() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->stopping = true;
  }
  queue_->changed.notify_one();
  // A callback chained to a future may drop the last reference to the backend: then this
  // is the thread itself, which ends as soon as that callback returns.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Completer::forget() {
  // Neither join nor detach may touch a thread of another process; the few bytes that its
  // handle and queue take are the child's until it ends.
  new std::thread(std::move(thread_));
  new std::shared_ptr<Queue>(queue_);
}

void Completer::run(const std::shared_ptr<Queue>& queue) {
  const std::shared_ptr<Queue> mine = queue;
  pthread_setname_np(pthread_self(), "beeline-torch");
  std::vector<c10::intrusive_ptr<WorkBeeline>> works;
  std::unique_lock lock(mine->mutex);
  while (true) {
    mine->changed.wait(lock, [&] { return mine->stopping || !mine->works.empty(); });
    if (mine->works.empty()) {
      return;
    }
    works.swap(mine->works);
    lock.unlock();
    for (const c10::intrusive_ptr<WorkBeeline>& work : works) {
      work->complete();
    }
    works.clear();
    lock.lock();
  }
}

}  // namespace beeline::pytorch
