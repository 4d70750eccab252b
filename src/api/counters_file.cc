#include "api/counters_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "api/process.h"
#include "base/descriptor.h"
#include "base/log.h"

namespace beeline::api {
namespace {

using Json = nlohmann::ordered_json;

struct Lane {
  const char* name;
  std::uint64_t nic::CardCounters::*sent;
  std::uint64_t nic::CardCounters::*received;
};
constexpr std::array lanes = {
    Lane{"wire", &nic::CardCounters::wire_payload_sent, &nic::CardCounters::wire_payload_received},
    Lane{"local", &nic::CardCounters::local_payload_sent, &nic::CardCounters::local_payload_received},
};

// A program may end in a signal handler that interrupted the card at work, and then the card's lock is
// never let go: so long, and no longer, is waited for it.
constexpr auto patience = std::chrono::seconds(2);

std::string& path_of_file() {
  static std::string* const path = new std::string;  // outlives every exit handler
  return *path;
}

std::optional<std::string> line_of_this_process() {
  const Process* process = this_process_if_any();
  if (process == nullptr || process->card == nullptr) return std::nullopt;
  return counters_line(process->card->counters(), process->card->port_counters(),
                       program_invocation_short_name, ::getpid());
}

std::optional<std::string> line_in_time() {
  auto promise = std::make_shared<std::promise<std::optional<std::string>>>();
  auto line = promise->get_future();
  std::thread([promise] { promise->set_value(line_of_this_process()); }).detach();
  if (line.wait_for(patience) == std::future_status::ready) return line.get();
  logger()->warn("BEELINE_COUNTERS: the program ended in the middle of the card's work: nothing written");
  return std::nullopt;
}

// One write to a file opened for appending: lines of several processes do not mix.
void append(const std::string& path, const std::string& line) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file || ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    logger()->warn("BEELINE_COUNTERS: cannot write to {}: {}", path, std::strerror(errno));
}

void write_counters() {
  if (const auto line = line_in_time()) append(path_of_file(), *line);
}

}  // namespace

std::string counters_line(const nic::CardCounters& card, const port::PortCounters& port,
                          std::string_view program, int pid) {
  Json by_lane;
  for (const Lane& lane : lanes)
    by_lane[lane.name] = {{"payload_bytes_sent", card.*lane.sent},
                          {"payload_bytes_received", card.*lane.received}};
  by_lane["local"]["payload_bytes_stored"] = card.local_payload_stored;
  const Json line = {{"version", 1},
                     {"program", program},
                     {"pid", pid},
                     {"lanes", by_lane},
                     {"packets",
                      {{"sent", card.sent},
                       {"received", card.received},
                       {"send_faults", card.send_faults},
                       {"icrc_bad", card.icrc_bad},
                       {"malformed", card.malformed},
                       {"no_queue_pair", card.no_queue_pair},
                       {"wrong_peer", card.wrong_peer},
                       {"handed_over", port.handed_over},
                       {"taken_over", port.taken_over}}}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_counters_at_exit(const std::string& path) {
  static std::once_flag once;
  std::call_once(once, [&] {
    std::error_code ignored;
    path_of_file() = std::filesystem::absolute(path, ignored);  // the program may go elsewhere
    std::atexit(write_counters);
  });
}

}  // namespace beeline::api
