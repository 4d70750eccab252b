#include "bench/run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "bench/values.h"

namespace beeline::bench {
namespace {

constexpr Errc code_of(beeline_status status) { return static_cast<Errc>(static_cast<int>(status) - 1); }

Result<void> checked(beeline_status status) {
  if (status == BEELINE_OK) return {};
  return fail(code_of(status), "{}", beeline_last_error());
}

struct FreeComm {
  void operator()(beeline_comm* comm) const { beeline_comm_destroy(comm); }
};
using Comm = std::unique_ptr<beeline_comm, FreeComm>;

Result<Comm> join(const Place& place) {
  beeline_comm_options options;
  beeline_comm_options_init(&options);
  options.rank = place.rank;
  options.size = place.size;
  options.name = "bench";
  if (!place.rendezvous.empty()) options.rendezvous = place.rendezvous.c_str();
  if (!place.device.empty()) options.device = place.device.c_str();
  beeline_comm* comm = nullptr;
  BEELINE_TRY_VOID(checked(beeline_comm_create(&options, &comm)));
  return Comm(comm);
}

class Measurement {
 public:
  Measurement(beeline_comm* comm, const RunOptions& options)
      : comm_(comm), options_(options), job_(options.job), rank_(beeline_comm_rank(comm)) {}

  Result<std::vector<Participant>> participants();
  Result<void> allocate(std::size_t largest_bytes);
  Result<Row> measure(std::size_t bytes);

 private:
  // Where an operation reads and writes, at one size and placement.
  struct Buffers {
    MutableBytes send, receive;
  };

  Result<Measured> measure_placement(const Shape& shape, bool in_place);
  Buffers place(const Shape& shape, bool in_place);
  void prepare(const Buffers& buffers, bool in_place, std::uint64_t iteration);
  std::uint64_t check(const Buffers& buffers, std::uint64_t iteration) const;
  Result<void> operate(const Buffers& buffers, std::size_t count);
  Result<void> run_checked(const Buffers& buffers, const Shape& shape, bool in_place, Measured& measured);
  Result<void> run_unchecked(const Buffers& buffers, const Shape& shape, bool in_place, Measured& measured);
  Result<Measured> combine(const Measured& mine);
  std::size_t index_of_own_part(std::size_t count) const { return static_cast<std::size_t>(rank_) * count; }
  std::size_t element() const { return beeline_dtype_bytes(job_.dtype); }

  beeline_comm* comm_;
  const RunOptions& options_;
  const Job job_;
  const int rank_;
  std::uint64_t iteration_ = 0;  // of all sizes together, so that no two have the same data
  std::vector<std::byte> send_, receive_;
};

Result<std::vector<Participant>> Measurement::participants() {
  struct Record {
    std::uint32_t pid;
    char host[64];
    char device[32];
  };
  Record mine{};
  mine.pid = static_cast<std::uint32_t>(::getpid());
  (void)::gethostname(mine.host, sizeof mine.host - 1);
  beeline_comm_stats stats{};
  stats.struct_bytes = sizeof stats;
  BEELINE_TRY_VOID(checked(beeline_comm_get_stats(comm_, &stats)));
  std::memcpy(mine.device, stats.device, sizeof mine.device);
  std::vector<Record> all(static_cast<std::size_t>(job_.ranks));
  BEELINE_TRY_VOID(
      checked(beeline_all_gather(comm_, &mine, all.data(), sizeof mine, BEELINE_UINT8, nullptr)));
  std::vector<Participant> out;
  for (int r = 0; r < job_.ranks; ++r) {
    const Record& record = all[static_cast<std::size_t>(r)];
    out.push_back({r, record.pid, std::string(record.host, ::strnlen(record.host, sizeof record.host)),
                   std::string(record.device, ::strnlen(record.device, sizeof record.device))});
  }
  return out;
}

Result<void> Measurement::allocate(std::size_t largest_bytes) try {
  const Shape shape = shape_for(job_, largest_bytes);
  send_.resize(shape.send_elements * element());
  receive_.resize(shape.receive_elements * element());
  return {};
} catch (const std::exception&) {  // bad_alloc, or length_error beyond any address space
  return fail(Errc::resource_exhausted, "rank {} has no memory for buffers of {} bytes: give a smaller -e",
              rank_, largest_bytes);
}

Measurement::Buffers Measurement::place(const Shape& shape, bool in_place) {
  const std::size_t send_bytes = shape.send_elements * element(),
                    receive_bytes = shape.receive_elements * element();
  const std::size_t own = index_of_own_part(shape.count) * element();
  if (!in_place) return {MutableBytes(send_).first(send_bytes), MutableBytes(receive_).first(receive_bytes)};
  if (job_.operation == Operation::reduce_scatter) {
    const auto whole = MutableBytes(send_).first(send_bytes);
    return {whole, whole.subspan(own, receive_bytes)};
  }
  const auto whole = MutableBytes(receive_).first(receive_bytes);
  if (job_.operation == Operation::all_gather) return {whole.subspan(own, send_bytes), whole};
  return {whole, whole};
}

// Poisons first: in place the data then overwrites its part of the poison.
void Measurement::prepare(const Buffers& buffers, bool in_place, std::uint64_t iteration) {
  poison(buffers.receive);
  const bool reads = job_.operation != Operation::broadcast || rank_ == job_.root;
  if (!reads) {
    if (!in_place) poison(buffers.send);  // must not matter
    return;
  }
  // Ranks contribute to the same elements of a reduction, and each its own part to all_gather.
  const std::size_t first =
      job_.operation == Operation::all_gather ? index_of_own_part(buffers.send.size() / element()) : 0;
  fill(job_, rank_, iteration, first, buffers.send);
}

std::uint64_t Measurement::check(const Buffers& buffers, std::uint64_t iteration) const {
  const std::size_t elements = buffers.receive.size() / element();
  switch (job_.operation) {
    case Operation::all_reduce:
      return count_wrong(job_, 0, iteration, 0, buffers.receive);
    case Operation::reduce_scatter:
      return count_wrong(job_, 0, iteration, index_of_own_part(elements), buffers.receive);
    case Operation::broadcast:
      return count_wrong(job_, job_.root, iteration, 0, buffers.receive);
    case Operation::all_gather:
      break;
  }
  std::uint64_t wrong = 0;
  const std::size_t part = elements / static_cast<std::size_t>(job_.ranks), part_bytes = part * element();
  for (int source = 0; source < job_.ranks; ++source) {
    const std::size_t begin = static_cast<std::size_t>(source);
    wrong += count_wrong(job_, source, iteration, begin * part,
                         buffers.receive.subspan(begin * part_bytes, part_bytes));
  }
  return wrong;
}

Result<void> Measurement::operate(const Buffers& buffers, std::size_t count) {
  const void* send = buffers.send.data();
  void* receive = buffers.receive.data();
  switch (job_.operation) {
    case Operation::all_reduce:
      return checked(beeline_all_reduce(comm_, send, receive, count, job_.dtype, job_.redop, nullptr));
    case Operation::reduce_scatter:
      return checked(beeline_reduce_scatter(comm_, send, receive, count, job_.dtype, job_.redop, nullptr));
    case Operation::all_gather:
      return checked(beeline_all_gather(comm_, send, receive, count, job_.dtype, nullptr));
    case Operation::broadcast:
      break;
  }
  return checked(beeline_broadcast(comm_, send, receive, count, job_.dtype, job_.root, nullptr));
}

double elapsed_us(TimePoint start) {
  return std::chrono::duration<double, std::micro>(monotonic_now() - start).count();
}

Result<void> Measurement::run_checked(const Buffers& buffers, const Shape& shape, bool in_place,
                                      Measured& measured) {
  double total_us = 0;
  std::uint64_t wrong = 0;
  for (int i = 0; i < options_.iterations; ++i) {
    const auto iteration = iteration_++;
    prepare(buffers, in_place, iteration);
    BEELINE_TRY_VOID(checked(beeline_barrier(comm_, nullptr)));
    const auto start = monotonic_now();
    BEELINE_TRY_VOID(operate(buffers, shape.count));
    total_us += elapsed_us(start);
    wrong += check(buffers, iteration);
  }
  measured = {total_us / options_.iterations, wrong};
  return {};
}

Result<void> Measurement::run_unchecked(const Buffers& buffers, const Shape& shape, bool in_place,
                                        Measured& measured) {
  prepare(buffers, in_place, iteration_++);
  BEELINE_TRY_VOID(checked(beeline_barrier(comm_, nullptr)));
  const auto start = monotonic_now();
  for (int i = 0; i < options_.iterations; ++i) BEELINE_TRY_VOID(operate(buffers, shape.count));
  measured = {elapsed_us(start) / options_.iterations, std::nullopt};
  return {};
}

// The slowest rank's time, and everybody's wrong elements.
Result<Measured> Measurement::combine(const Measured& mine) {
  auto slowest_ns = static_cast<std::int64_t>(mine.time_us * 1e3);
  auto wrong = static_cast<std::int64_t>(mine.wrong.value_or(0));
  BEELINE_TRY_VOID(
      checked(beeline_all_reduce(comm_, &slowest_ns, &slowest_ns, 1, BEELINE_INT64, BEELINE_MAX, nullptr)));
  BEELINE_TRY_VOID(
      checked(beeline_all_reduce(comm_, &wrong, &wrong, 1, BEELINE_INT64, BEELINE_SUM, nullptr)));
  Measured all{static_cast<double>(slowest_ns) / 1e3, std::nullopt};
  // What this rank saw counts even if the sum above, by the code under test, lost it.
  if (mine.wrong)
    all.wrong = std::max(static_cast<std::uint64_t>(std::max<std::int64_t>(wrong, 0)), *mine.wrong);
  return all;
}

Result<Measured> Measurement::measure_placement(const Shape& shape, bool in_place) {
  const Buffers buffers = place(shape, in_place);
  prepare(buffers, in_place, iteration_++);
  for (int i = 0; i < options_.warmups; ++i) BEELINE_TRY_VOID(operate(buffers, shape.count));
  Measured mine;
  if (options_.check)
    BEELINE_TRY_VOID(run_checked(buffers, shape, in_place, mine));
  else
    BEELINE_TRY_VOID(run_unchecked(buffers, shape, in_place, mine));
  return combine(mine);
}

Result<Row> Measurement::measure(std::size_t bytes) {
  const Shape shape = shape_for(job_, bytes);
  Row row{shape.bytes, shape.count, {}, {}};
  BEELINE_TRY(row.out_of_place, measure_placement(shape, false));
  BEELINE_TRY(row.in_place, measure_placement(shape, true));
  return row;
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

Result<std::uint64_t> run_rank(const Place& place, const RunOptions& given) {
  BEELINE_TRY(const auto sizes, size_steps(given.min_bytes, given.max_bytes, given.factor));
  BEELINE_TRY(const Comm comm, join(place));
  RunOptions options = given;
  options.job.ranks = beeline_comm_size(comm.get());
  if (options.check) BEELINE_TRY_VOID(check_is_possible(options.job));
  if (options.job.root >= options.job.ranks)
    return fail(Errc::invalid_argument, "root {} is outside the group of {} ranks", options.job.root,
                options.job.ranks);
  Measurement measurement(comm.get(), options);
  BEELINE_TRY_VOID(measurement.allocate(options.max_bytes));
  const bool speaks = beeline_comm_rank(comm.get()) == 0;
  RunDescription description{options.job,        options.min_bytes, options.max_bytes, options.factor,
                             options.iterations, options.warmups,   options.check,     {}};
  BEELINE_TRY(description.participants, measurement.participants());
  if (speaks) print(table_head(description));
  std::vector<Row> rows;
  for (const std::size_t bytes : sizes) {
    BEELINE_TRY(const Row row, measurement.measure(bytes));
    rows.push_back(row);
    if (speaks) print(table_row(options.job, row));
  }
  if (speaks) print(table_tail(options.job, rows));
  if (speaks && !options.json_path.empty())
    BEELINE_TRY_VOID(write_file(options.json_path, to_json(description, rows)));
  return total_wrong(rows);
}

}  // namespace beeline::bench
