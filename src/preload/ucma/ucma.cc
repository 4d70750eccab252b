// Which descriptor is which open file: the one thing of this emulation that a process has once.
#include "preload/ucma/ucma.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "nic/guarded.h"
#include "preload/engine.h"
#include "preload/ucma/file.h"
#include "preload/ucma/host.h"

namespace beeline::preload::ucma {
namespace {

constexpr std::size_t descriptors_max = 65536;
constexpr std::size_t command_bytes_max = 4096;
constexpr int wait_ms = 500;  // then a blocked reader looks whether its file still exists

enum class Ownership : std::uint8_t { foreign, live, dead };  // dead: of the parent, before a fork
std::array<std::atomic<Ownership>, descriptors_max> ownership;

struct Process {
  std::mutex mutex;
  std::map<int, std::shared_ptr<File>> files;  // a file may have several descriptors
  Host* host = nullptr;                        // never destroyed: the card may call it until it ends
};
std::atomic<Process*> process{nullptr};

Process& this_process() {
  Process* known = process.load();
  if (known != nullptr) return *known;
  auto made = std::make_unique<Process>();
  return process.compare_exchange_strong(known, made.get()) ? *made.release() : *known;
}

std::shared_ptr<File> file_of(int fd) {
  Process& p = this_process();
  const std::lock_guard lock(p.mutex);
  const auto found = p.files.find(fd);
  return found == p.files.end() ? nullptr : found->second;
}

bool in_range(int fd) { return fd >= 0 && static_cast<std::size_t>(fd) < descriptors_max; }

int fail(int error) {
  errno = error;
  return -1;
}

// The file stays when it has another descriptor.
void drop(int fd) {
  Process& p = this_process();
  std::shared_ptr<File> last;
  Host* host = nullptr;
  {
    const std::lock_guard lock(p.mutex);
    const auto found = p.files.find(fd);
    if (found == p.files.end()) return;
    std::shared_ptr<File> file = found->second;
    p.files.erase(found);
    host = p.host;
    int other = -1;
    for (const auto& [descriptor, its] : p.files)
      if (its == file) other = descriptor;
    file->set_descriptor(other);
    if (other < 0) last = std::move(file);
  }
  if (last != nullptr && host != nullptr) host->release(*last);
}

// 0 when there may be an event.
int wait_for_event(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || !is_event_descriptor(fd)) return EBADF;
  if ((flags & O_NONBLOCK) != 0) return EAGAIN;
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, wait_ms) < 0 ? errno : 0;
}

bool is_get_event(Bytes command) {
  rdma_ucm_cmd_hdr header{};
  if (command.size() < sizeof header) return false;
  std::memcpy(&header, command.data(), sizeof header);
  return header.cmd == RDMA_USER_CM_CMD_GET_EVENT;
}

// Registered after the engine was made, so it runs before that ends.
void part_at_exit() {
  const Process* const known = process.load();
  if (known != nullptr && known->host != nullptr) known->host->part();
}

}  // namespace

int open_device(int flags) {
  const auto running = engine();
  if (!running || running->card == nullptr) return fail(ENODEV);
  auto file = std::make_shared<File>(flags);
  if (!file->valid()) return fail(EMFILE);
  const int fd = file->first_descriptor();
  if (!in_range(fd)) {
    ::syscall(SYS_close, fd);
    return fail(EMFILE);
  }
  Process& p = this_process();
  const std::lock_guard lock(p.mutex);
  if (p.host == nullptr) {
    p.host = new Host(*running->card);
    std::atexit(part_at_exit);
    p.host->set_file_of([](int descriptor) { return file_of(descriptor); });
  }
  p.files[fd] = std::move(file);
  ownership[static_cast<std::size_t>(fd)] = Ownership::live;
  return fd;
}

bool owns(int fd) noexcept {
  return in_range(fd) &&
         ownership[static_cast<std::size_t>(fd)].load(std::memory_order_relaxed) != Ownership::foreign;
}

bool still_has(int fd) {
  if (is_event_descriptor(fd)) return true;
  forget(fd);
  return false;
}

ssize_t write(int fd, const void* bytes, std::size_t count) {
  const auto file = file_of(fd);
  if (file == nullptr) return fail(ENODEV);
  if (count > command_bytes_max) return fail(EINVAL);
  std::array<std::byte, command_bytes_max> command;
  if (!nic::copy_guarded(command.data(), static_cast<const std::byte*>(bytes), count)) return fail(EFAULT);
  const Bytes view = Bytes(command).first(count);
  Host* const host = this_process().host;
  for (;;) {
    const int error = host->execute(*file, view);
    if (error == 0) return static_cast<ssize_t>(count);
    if (error != -EAGAIN || !is_get_event(view)) return fail(-error);
    if (const int reason = wait_for_event(fd); reason != 0) return fail(reason);
    if (file_of(fd) != file) return fail(EBADF);
  }
}

int fstat(int, struct stat* out) {
  *out = {};
  out->st_mode = S_IFCHR | 0666;
  out->st_nlink = 1;
  constexpr unsigned misc_major = 10, any_minor = 61;
  out->st_rdev = ::makedev(misc_major, any_minor);
  return 0;
}

int close(int fd) {
  forget(fd);
  return static_cast<int>(::syscall(SYS_close, fd));
}

void duplicated(int from, int to) {
  if (!in_range(to)) return;
  Process& p = this_process();
  const std::lock_guard lock(p.mutex);
  const auto found = p.files.find(from);
  if (found != p.files.end()) p.files[to] = found->second;
  ownership[static_cast<std::size_t>(to)] = found != p.files.end() ? Ownership::live : Ownership::dead;
}

void forget(int fd) {
  if (!in_range(fd)) return;
  if (ownership[static_cast<std::size_t>(fd)].exchange(Ownership::foreign) == Ownership::live) drop(fd);
}

// Nothing of the parent's is touched: its locks may be held by threads that this process does not have.
void abandon_after_fork() {
  process.store(nullptr);
  for (auto& each : ownership)
    if (each.load(std::memory_order_relaxed) == Ownership::live) each = Ownership::dead;
}

}  // namespace beeline::preload::ucma
