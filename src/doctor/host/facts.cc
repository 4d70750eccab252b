#include "doctor/host/facts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "doctor/host/text.h"

namespace beeline::doctor {
namespace {

int prefix_length(const void* mask, std::size_t bytes) {
  int bits = 0;
  for (std::size_t i = 0; i < bytes; ++i) bits += std::popcount(static_cast<const unsigned char*>(mask)[i]);
  return bits;
}

std::string addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  std::string text;
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_netmask == nullptr) continue;
    char printed[INET6_ADDRSTRLEN] = {};
    if (i->ifa_addr->sa_family == AF_INET) {
      sockaddr_in address{}, mask{};
      std::memcpy(&address, i->ifa_addr, sizeof address);
      std::memcpy(&mask, i->ifa_netmask, sizeof mask);
      ::inet_ntop(AF_INET, &address.sin_addr, printed, sizeof printed);
      text += fmt::format("{} {}/{}\n", i->ifa_name, printed, prefix_length(&mask.sin_addr, 4));
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 address{}, mask{};
      std::memcpy(&address, i->ifa_addr, sizeof address);
      std::memcpy(&mask, i->ifa_netmask, sizeof mask);
      ::inet_ntop(AF_INET6, &address.sin6_addr, printed, sizeof printed);
      text += fmt::format("{} {}/{}\n", i->ifa_name, printed, prefix_length(&mask.sin6_addr, 16));
    }
  }
  ::freeifaddrs(first);
  return text;
}

void shared_memory(Reading& reading) {
  struct statvfs state {};
  if (::statvfs("/dev/shm", &state) != 0) return;
  reading.access = Access::found;
  reading.value = fmt::format("size_bytes={} free_bytes={}", state.f_blocks * state.f_frsize,
                              state.f_bavail * state.f_frsize);
}

void clock_state(Reading& reading) {
  timex state{};
  const int result = ::adjtimex(&state);
  if (result < 0) return;
  reading.access = Access::found;
  reading.value =
      result == TIME_ERROR || (state.status & STA_UNSYNC) != 0 ? "unsynchronized" : "synchronized";
}

void device_access(Reading& reading, const std::string& path) {
  const Descriptor opened(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  const int error = errno;
  if (opened.get() < 0 && error == ENOENT) return;
  reading.access = Access::found;
  reading.value = opened.get() >= 0 ? "ok" : std::strerror(error);
}

}  // namespace

Reading system_fact(const std::string& name) {
  Reading reading;
  reading.question = {Kind::fact, name};
  if (name == "addresses") {
    reading.value = addresses();
    reading.access = reading.value.empty() ? Access::absent : Access::found;
  } else if (name == "shm") {
    shared_memory(reading);
  } else if (name == "clock") {
    clock_state(reading);
  } else if (starts_with(name, "access /dev/infiniband/")) {
    device_access(reading, name.substr(std::strlen("access ")));
  } else if (name == "user") {
    reading.access = Access::found;
    reading.value = fmt::format("uid={}", ::geteuid());
  }
  return reading;
}

}  // namespace beeline::doctor
