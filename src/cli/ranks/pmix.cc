// The few calls of PMIx that one word takes, by the library's public interface (PMIx Standard 4.1: chapter 3
// for the structures, 6 and 7 for the calls). Versions 2 to 5 agree on what is used here.
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include "cli/ranks/noticeboard.h"

namespace beeline::cli {
namespace {

using bootstrap::Deadline;

constexpr int success = 0;
constexpr std::uint16_t type_string = 3;
constexpr std::uint8_t scope_global = 3;
constexpr auto between_tries = std::chrono::milliseconds(100);
constexpr const char* key_of_notice = "beeline.doctor";
constexpr const char* key_of_host = "pmix.hname";

struct Process {
  char job[256];
  std::uint32_t rank;
};
struct Value {
  std::uint16_t type;
  union {
    char* text;
    std::array<std::uint64_t, 8> room;  // no version's largest member is larger
  } data;
};

struct Calls {
  int (*init)(Process*, void*, std::size_t) = nullptr;
  int (*put)(std::uint8_t, const char*, Value*) = nullptr;
  int (*commit)() = nullptr;
  int (*get)(const Process*, const char*, const void*, std::size_t, Value**) = nullptr;
  int (*finalize)(const void*, std::size_t) = nullptr;
  const char* (*error_string)(int) = nullptr;
};

template <class Function>
bool find(void* library, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(::dlsym(library, name));
  return out != nullptr;
}

Result<Calls> load() {
  void* library = nullptr;
  for (const char* name : {"libpmix.so.2", "libpmix.so"})
    if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(Errc::unsupported, "no libpmix.so.2 here");
  Calls calls;
  const bool all = find(library, "PMIx_Init", calls.init) && find(library, "PMIx_Put", calls.put) &&
                   find(library, "PMIx_Commit", calls.commit) && find(library, "PMIx_Get", calls.get) &&
                   find(library, "PMIx_Finalize", calls.finalize) &&
                   find(library, "PMIx_Error_string", calls.error_string);
  if (!all) return fail(Errc::unsupported, "libpmix lacks one of the calls that this program knows");
  return calls;  // never unloaded: it has threads
}

// The library's calls take no deadline that every server keeps, so they run beside us. One that hangs is left
// to the end of the process.
template <class Out>
Result<Out> within(const Deadline& deadline, const char* what, std::function<Result<Out>()> call) {
  std::packaged_task<Result<Out>()> task(std::move(call));
  auto done = task.get_future();
  std::thread(std::move(task)).detach();
  const auto left = std::max<Duration>(deadline.left(), Duration::zero());
  if (done.wait_for(left) != std::future_status::ready)
    return fail(Errc::timed_out, "{} did not return in time", what);
  return done.get();
}

class Pmix final : public Noticeboard {
 public:
  Pmix(const Calls& calls, const Process& self) : calls_(calls), self_(self) {}

  Result<void> post(const std::string& word, const Deadline& deadline) override {
    return within<void>(deadline, "PMIx_Commit", [calls = calls_, word]() -> Result<void> {
      auto text = word;
      Value value{type_string, {text.data()}};
      int status = calls.put(scope_global, key_of_notice, &value);
      if (status == success) status = calls.commit();
      if (status != success) return fail(Errc::io, "PMIx_Put: {}", calls.error_string(status));
      return {};
    });
  }

  // Some servers wait until rank 0 has posted it, some say at once that there is nothing. No other rank has
  // to be there for it, unlike for a fence.
  Result<std::string> read(const Deadline& deadline) override {
    for (;;) {
      auto word = text_of(0, key_of_notice, deadline);
      if (word || deadline.passed()) return word;
      std::this_thread::sleep_for(between_tries);
    }
  }

  std::string host_of(int rank, const Deadline& deadline) override {
    return text_of(rank, key_of_host, deadline).value_or("");
  }

  void leave(const Deadline& deadline) override {
    (void)within<void>(deadline, "PMIx_Finalize", [calls = calls_]() -> Result<void> {
      calls.finalize(nullptr, 0);
      return {};
    });
  }

 private:
  Result<std::string> text_of(int rank, const char* key, const Deadline& deadline) {
    Process process = self_;
    process.rank = static_cast<std::uint32_t>(rank);
    return within<std::string>(deadline, "PMIx_Get", [calls = calls_, process, key]() -> Result<std::string> {
      Value* value = nullptr;
      const int status = calls.get(&process, key, nullptr, 0, &value);
      if (status != success || value == nullptr)
        return fail(Errc::io, "PMIx_Get: {}", calls.error_string(status));
      std::string text;
      if (value->type == type_string && value->data.text != nullptr) {
        text = value->data.text;
        std::free(value->data.text);
      }
      std::free(value);
      return text;
    });
  }

  const Calls calls_;
  const Process self_;
};

}  // namespace

Result<std::unique_ptr<Noticeboard>> open_pmix(const Deadline& deadline) {
  BEELINE_TRY(const auto calls, load());
  BEELINE_TRY(const auto self, within<Process>(deadline, "PMIx_Init", [calls]() -> Result<Process> {
                Process process{};
                const int status = calls.init(&process, nullptr, 0);
                if (status != success) return fail(Errc::io, "PMIx_Init: {}", calls.error_string(status));
                return process;
              }));
  return std::make_unique<Pmix>(calls, self);
}

}  // namespace beeline::cli
