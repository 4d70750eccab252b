#include "cli/perf_output.h"

#include <unistd.h>

#include <cstdio>

#include "perf/table.h"

namespace beeline::cli {

PerfOutput::PerfOutput(bool report_gbits)
    : report_gbits_(report_gbits), terminal_(isatty(STDERR_FILENO) == 1) {}
PerfOutput::~PerfOutput() { clear_progress(); }

void PerfOutput::agreed(const perf::Agreement& agreement) {
  std::fputs(perf::header_text(agreement, report_gbits_).c_str(), stdout);
  std::fflush(stdout);
}

void PerfOutput::row(const perf::Row& row) {
  clear_progress();
  std::fputs(perf::row_text(row, report_gbits_).c_str(), stdout);
  std::fflush(stdout);
}

void PerfOutput::progress(std::uint64_t bytes, std::uint64_t messages, Duration elapsed) {
  if (!terminal_) return;
  const double seconds = static_cast<double>(elapsed.count()) / 1e9;
  std::fprintf(stderr, "\r\033[K %lu bytes: %lu messages in %.0f s", static_cast<unsigned long>(bytes),
               static_cast<unsigned long>(messages), seconds);
  line_open_ = true;
}

void PerfOutput::clear_progress() {
  if (line_open_) std::fputs("\r\033[K", stderr);
  line_open_ = false;
}

}  // namespace beeline::cli
