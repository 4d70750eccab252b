// One thing that a line says.
#pragma once

#include <cstdint>
#include <string>

#include "doctor/log/kinds.h"
#include "doctor/log/prefix.h"

namespace beeline::doctor::log {

struct Event {
  Kind kind = Kind::count_;
  std::int64_t code = -1;  // a completion status, an errno, an exit code, an Xid
  std::string rank, host, pid, device, peer, local_gid, remote_gid, when;
  std::string detail;   // in the log's own words
  std::string section;  // the heading that it stands under, where its line names nobody
  // Of a collective that timed out.
  std::int64_t sequence = -1, elements = -1, timeout_ms = -1, enqueued = -1, completed = -1;
  Stamps stamps;
  Stamps inner;  // behind another time of the same clock
  std::uint32_t source = 0;
  std::uint64_t line = 0;
  std::uint64_t order = 0;       // over all sources, as read
  std::uint64_t last_order = 0;  // of the last one like it
  std::uint64_t count = 1;
  bool kernel = false;  // from the kernel log
  bool cut = false;     // the log ends in this line
  std::string text;     // of the line, printable
};

}  // namespace beeline::doctor::log
