// Beeline in C++20: owners, exceptions and element types over the C API in beeline.h, which
// rules whatever is not said here. Header only; link with libbeeline.so.
//
//   auto group = beeline::Communicator::create();            // under torchrun
//   std::vector<float> gradient = …;
//   group.all_reduce(std::span(gradient));                   // in place, waits
//   auto work = group.all_reduce_async(std::span(gradient)); // or starts, and …
//   work.wait();                                             // … waits here
//
// What it throws: beeline::Error, from every function that is not noexcept, when the C
// function below it fails; std::invalid_argument when two buffers do not fit together.
#ifndef BEELINE_BEELINE_HPP
#define BEELINE_BEELINE_HPP

#include <beeline/beeline.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace beeline {

// A failed call: what() says what happened, where, and what to do; status() is for programs.
class Error : public std::runtime_error {
 public:
  Error(beeline_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  beeline_status status() const noexcept { return status_; }

 private:
  beeline_status status_;
};

// A bfloat16 as its bits; Beeline does not compute with it outside collectives.
struct bfloat16 {
  std::uint16_t bits = 0;
};

// The dtype of an element type; other types do not compile.
template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr beeline_dtype value = BEELINE_FLOAT32;
};
template <>
struct dtype_of<bfloat16> {
  static constexpr beeline_dtype value = BEELINE_BFLOAT16;
};
template <>
struct dtype_of<std::int32_t> {
  static constexpr beeline_dtype value = BEELINE_INT32;
};
template <>
struct dtype_of<std::int64_t> {
  static constexpr beeline_dtype value = BEELINE_INT64;
};
template <>
struct dtype_of<std::uint8_t> {
  static constexpr beeline_dtype value = BEELINE_UINT8;
};

namespace detail {
inline void check(beeline_status status) {
  if (status != BEELINE_OK) throw Error(status, beeline_last_error());
}
inline void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}
struct FreeComm {
  void operator()(beeline_comm* comm) const noexcept { beeline_comm_destroy(comm); }
};
struct FreeWork {
  void operator()(beeline_work* work) const noexcept { beeline_work_free(work); }
};
}  // namespace detail

// An operation under way. Its buffers belong to Beeline until it is complete. Destroying the
// object neither waits for the operation nor ends it.
class [[nodiscard]] Work {
 public:
  // Complete? Throws when it failed.
  bool done() {
    int complete = 0;
    detail::check(beeline_work_test(work_.get(), &complete));
    return complete != 0;
  }
  // Waits until it is complete. Throws when it failed.
  void wait() { detail::check(beeline_work_wait(work_.get(), 0)); }
  // The same, for so long at most: false when it runs on.
  bool wait_for(std::chrono::duration<double> timeout) {
    const beeline_status status = beeline_work_wait(work_.get(), timeout.count());
    if (status == BEELINE_TIMED_OUT && !complete()) return false;
    detail::check(status);
    return true;
  }
  beeline_work* get() const noexcept { return work_.get(); }

 private:
  friend class Communicator;
  explicit Work(beeline_work* work) : work_(work) {}
  bool complete() const noexcept {
    int done = 0;
    (void)beeline_work_test(work_.get(), &done);
    return done != 0;
  }
  std::unique_ptr<beeline_work, detail::FreeWork> work_;
};

class Communicator {
 public:
  // By the environment that torchrun sets.
  static Communicator create() {
    beeline_comm_options options;
    beeline_comm_options_init(&options);
    return create(options);
  }
  // Rank 0 listens at `rendezvous`, "host:port".
  static Communicator create(std::int32_t rank, std::int32_t size, const std::string& rendezvous) {
    beeline_comm_options options;
    beeline_comm_options_init(&options);
    options.rank = rank;
    options.size = size;
    options.rendezvous = rendezvous.c_str();
    return create(options);
  }
  static Communicator create(const beeline_comm_options& options) {
    beeline_comm* comm = nullptr;
    detail::check(beeline_comm_create(&options, &comm));
    return Communicator(comm);
  }

  std::int32_t rank() const noexcept { return beeline_comm_rank(comm_.get()); }
  std::int32_t size() const noexcept { return beeline_comm_size(comm_.get()); }
  beeline_comm_stats stats() const {
    beeline_comm_stats stats{};
    stats.struct_bytes = sizeof stats;
    detail::check(beeline_comm_get_stats(comm_.get(), &stats));
    return stats;
  }
  // Ends everything under way, on all ranks.
  void abort(const std::string& reason) noexcept { beeline_comm_abort(comm_.get(), reason.c_str()); }
  beeline_comm* get() const noexcept { return comm_.get(); }

  template <class T>
  Work all_reduce_async(std::span<const T> send, std::span<T> receive, beeline_redop op = BEELINE_SUM) {
    return start([&](beeline_work** work) { run_all_reduce(send, receive, op, work); });
  }
  template <class T>
  Work all_reduce_async(std::span<T> in_place, beeline_redop op = BEELINE_SUM) {
    return all_reduce_async(std::span<const T>(in_place), in_place, op);
  }
  template <class T>
  Work reduce_scatter_async(std::span<const T> send, std::span<T> receive, beeline_redop op = BEELINE_SUM) {
    return start([&](beeline_work** work) { run_reduce_scatter(send, receive, op, work); });
  }
  template <class T>
  Work all_gather_async(std::span<const T> send, std::span<T> receive) {
    return start([&](beeline_work** work) { run_all_gather(send, receive, work); });
  }
  // On the root `buffer` is read, on all others written.
  template <class T>
  Work broadcast_async(std::span<T> buffer, std::int32_t root) {
    return start([&](beeline_work** work) { run_broadcast(buffer, root, work); });
  }
  Work barrier_async() {
    return start([&](beeline_work** work) { detail::check(beeline_barrier(comm_.get(), work)); });
  }

  // The same, waiting until done. Cheaper than starting it and waiting: there is no work.
  template <class T>
  void all_reduce(std::span<const T> send, std::span<T> receive, beeline_redop op = BEELINE_SUM) {
    run_all_reduce(send, receive, op, nullptr);
  }
  template <class T>
  void all_reduce(std::span<T> in_place, beeline_redop op = BEELINE_SUM) {
    run_all_reduce(std::span<const T>(in_place), in_place, op, nullptr);
  }
  template <class T>
  void reduce_scatter(std::span<const T> send, std::span<T> receive, beeline_redop op = BEELINE_SUM) {
    run_reduce_scatter(send, receive, op, nullptr);
  }
  template <class T>
  void all_gather(std::span<const T> send, std::span<T> receive) {
    run_all_gather(send, receive, nullptr);
  }
  template <class T>
  void broadcast(std::span<T> buffer, std::int32_t root) {
    run_broadcast(buffer, root, nullptr);
  }
  void barrier() { detail::check(beeline_barrier(comm_.get(), nullptr)); }

 private:
  explicit Communicator(beeline_comm* comm) : comm_(comm) {}
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  template <class Start>
  static Work start(Start start) {
    beeline_work* work = nullptr;
    start(&work);
    return Work(work);
  }
  // Without `work` they wait.
  template <class T>
  void run_all_reduce(std::span<const T> send, std::span<T> receive, beeline_redop op, beeline_work** work) {
    detail::require(send.size() == receive.size(), "all_reduce: both buffers have one size");
    detail::check(beeline_all_reduce(comm_.get(), send.data(), receive.data(), send.size(),
                                     dtype_of<T>::value, op, work));
  }
  template <class T>
  void run_reduce_scatter(std::span<const T> send, std::span<T> receive, beeline_redop op,
                          beeline_work** work) {
    detail::require(send.size() == receive.size() * ranks(),
                    "reduce_scatter: send is size() times as long as receive");
    detail::check(beeline_reduce_scatter(comm_.get(), send.data(), receive.data(), receive.size(),
                                         dtype_of<T>::value, op, work));
  }
  template <class T>
  void run_all_gather(std::span<const T> send, std::span<T> receive, beeline_work** work) {
    detail::require(receive.size() == send.size() * ranks(),
                    "all_gather: receive is size() times as long as send");
    detail::check(
        beeline_all_gather(comm_.get(), send.data(), receive.data(), send.size(), dtype_of<T>::value, work));
  }
  template <class T>
  void run_broadcast(std::span<T> buffer, std::int32_t root, beeline_work** work) {
    detail::check(beeline_broadcast(comm_.get(), buffer.data(), buffer.data(), buffer.size(),
                                    dtype_of<T>::value, root, work));
  }
  std::unique_ptr<beeline_comm, detail::FreeComm> comm_;
};

}  // namespace beeline

#endif
