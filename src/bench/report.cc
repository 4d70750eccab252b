#include "bench/report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

namespace beeline::bench {
namespace {

using Json = nlohmann::ordered_json;

// nccl-tests says "none" where nothing is reduced, and -1 where there is no root.
std::string_view redop_name(const Job& job) { return job.reduces() ? name(job.redop) : "none"; }
int root_shown(const Job& job) { return job.operation == Operation::broadcast ? job.root : -1; }

std::string placement_columns(const Job& job, std::size_t bytes, const Measured& measured) {
  const Bandwidth width = bandwidth(job, bytes, measured.time_us);
  const char* time_format = measured.time_us < 100    ? "{:8.2f}"
                            : measured.time_us < 1000 ? "{:8.1f}"
                                                      : "{:8.0f}";
  return fmt::format("{}  {:6.2f}  {:6.2f} {:>6}", fmt::format(fmt::runtime(time_format), measured.time_us),
                     width.algbw_GBps, width.busbw_GBps,
                     measured.wrong ? fmt::to_string(*measured.wrong) : std::string("N/A"));
}

double average_busbw(const Job& job, const std::vector<Row>& rows) {
  double sum = 0;
  for (const Row& row : rows)
    for (const Measured* measured : {&row.out_of_place, &row.in_place})
      sum += bandwidth(job, row.bytes, measured->time_us).busbw_GBps;
  return rows.empty() ? 0 : sum / static_cast<double>(2 * rows.size());
}

Json placement_json(const Job& job, std::size_t bytes, const Measured& measured) {
  const Bandwidth width = bandwidth(job, bytes, measured.time_us);
  Json out{{"time_us", measured.time_us}, {"algbw_GBps", width.algbw_GBps}, {"busbw_GBps", width.busbw_GBps}};
  if (measured.wrong)
    out["wrong"] = *measured.wrong;
  else
    out["wrong"] = nullptr;  // not checked is not right
  return out;
}

Json environment_json(const RunDescription& run) {
  utsname kernel{};
  (void)::uname(&kernel);
  Json ranks = Json::array();
  for (const Participant& who : run.participants)
    ranks.push_back({{"rank", who.rank}, {"pid", who.pid}, {"host", who.host}, {"device", who.device}});
  return {{"beeline", beeline_version()},
          {"operation", name(run.job.operation)},
          {"ranks", run.job.ranks},
          {"iterations", run.iterations},
          {"warmup_iterations", run.warmups},
          {"check", run.check},
          {"time", "mean per operation of the slowest rank, each from its return from a barrier"},
          {"kernel", fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine)},
          {"cpus", ::sysconf(_SC_NPROCESSORS_ONLN)},
          {"participants", ranks}};
}

}  // namespace

std::string table_head(const RunDescription& run) {
  std::string text = fmt::format(
      "# beeline {} {}: {} ranks, {} to {} bytes, factor {}, {} iterations, {} warm-ups, {}\n",
      beeline_version(), name(run.job.operation), run.job.ranks, run.min_bytes, run.max_bytes, run.factor,
      run.iterations, run.warmups, run.check ? "every element checked" : "not checked");
  text += "# time: mean per operation of the slowest rank, each from its return from a barrier\n#\n";
  for (const Participant& who : run.participants)
    text +=
        fmt::format("#  Rank {:2} Pid {:6} on {:>10} device {}\n", who.rank, who.pid, who.host, who.device);
  text += "#\n";
  text +=
      "#                                                              out-of-place                       "
      "in-place\n";
  text +=
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw "
      "  busbw "
      "#wrong\n";
  text +=
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s) "
      " (GB/s)\n";
  return text;
}

std::string table_row(const Job& job, const Row& row) {
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6} {} {}\n", row.bytes, row.count, name(job.dtype),
                     redop_name(job), root_shown(job), placement_columns(job, row.bytes, row.out_of_place),
                     placement_columns(job, row.bytes, row.in_place));
}

std::uint64_t total_wrong(const std::vector<Row>& rows) {
  std::uint64_t wrong = 0;
  for (const Row& row : rows) wrong += row.out_of_place.wrong.value_or(0) + row.in_place.wrong.value_or(0);
  return wrong;
}

std::string table_tail(const Job& job, const std::vector<Row>& rows) {
  const auto wrong = total_wrong(rows);
  return fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.6g}\n#\n", wrong,
                     wrong == 0 ? "OK" : "FAILED", average_busbw(job, rows));
}

std::string to_json(const RunDescription& run, const std::vector<Row>& rows) {
  Json results = Json::array();
  for (const Row& row : rows)
    results.push_back({{"bytes", row.bytes},
                       {"count", row.count},
                       {"dtype", name(run.job.dtype)},
                       {"redop", redop_name(run.job)},
                       {"out_of_place", placement_json(run.job, row.bytes, row.out_of_place)},
                       {"in_place", placement_json(run.job, row.bytes, row.in_place)}});
  return Json{{"version", 1}, {"environment", environment_json(run)}, {"results", results}}.dump(
             2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

Result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) return fail_errno(errno, fmt::format("cannot write {}", path));
  return {};
}

}  // namespace beeline::bench
