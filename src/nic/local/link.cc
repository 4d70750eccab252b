#include "nic/local/link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace beeline::nic::local {
namespace {

ssize_t copy_from(pid_t process, std::uint64_t address, void* to, std::size_t bytes) {
  const iovec here{to, bytes};
  const iovec there{reinterpret_cast<void*>(address), bytes};
  return ::process_vm_readv(process, &here, 1, &there, 1, 0);
}

int open_process(pid_t process) {
  return process > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, process, 0)) : -1;
}

}  // namespace

Link::Link(Descriptor socket, pid_t peer)
    : socket_(std::move(socket)), process_(open_process(peer)), peer_(peer) {}

Result<void> Link::open(const Witness& witness) {
  side_ = 0;
  BEELINE_TRY(page_, SharedMemory::create("beeline-link", sizeof(LinkPage)));
  Message hello;
  hello.kind = Kind::hello;
  hello.id = *witness.number;
  hello.address = reinterpret_cast<std::uintptr_t>(witness.number);
  if (!send(hello, page_.descriptor())) return fail_errno(errno, "cannot greet a process of this host");
  page_.close_file();
  return {};
}

Result<void> Link::take_hello(const Message& hello, Descriptor page_file, const Witness& witness) {
  if (side_ == 1) {
    if (is_open()) return fail(Errc::protocol, "a process of this host says hello twice");
    BEELINE_TRY(page_, SharedMemory::adopt(std::move(page_file), sizeof(LinkPage)));
    page_.close_file();
    Message answer;
    answer.kind = Kind::hello;
    answer.id = *witness.number;
    answer.address = reinterpret_cast<std::uintptr_t>(witness.number);
    if (!send(answer)) return fail_errno(errno, "cannot greet a process of this host");
  }
  page().sides[side_].reads.store(can_read_witness(hello) ? 1 : 0);
  return {};
}

// The process that the kernel named is the one that speaks, and it lets us read its memory (Yama, seccomp,
// containers and capabilities may have it otherwise).
bool Link::can_read_witness(const Message& hello) const {
  std::uint64_t number = 0;
  return process_ && copy_from(peer_, hello.address, &number, sizeof number) == sizeof number &&
         number == hello.id && lives();
}

bool Link::lives() const {
  pollfd ends{process_.get(), POLLIN, 0};
  return process_ && ::poll(&ends, 1, 0) == 0;
}

bool Link::send(const Message& message, int file) const {
  MessageBytes bytes = encode(message);
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr envelope{};
  envelope.msg_iov = &piece;
  envelope.msg_iovlen = 1;
  if (file >= 0) {
    envelope.msg_control = control;
    envelope.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&envelope);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  return ::sendmsg(socket_.get(), &envelope, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

Link::Status Link::receive(Received& out) const {
  MessageBytes bytes;
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr envelope{};
  envelope.msg_iov = &piece;
  envelope.msg_iovlen = 1;
  envelope.msg_control = control;
  envelope.msg_controllen = sizeof control;
  const ssize_t length = ::recvmsg(socket_.get(), &envelope, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return Status::nothing;
  out.file.reset();
  bool first = true;
  for (cmsghdr* header = CMSG_FIRSTHDR(&envelope); header != nullptr;
       header = CMSG_NXTHDR(&envelope, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t files = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < files; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(header) + i * sizeof(int), sizeof file);
      Descriptor owned(file);
      if (std::exchange(first, false)) out.file = std::move(owned);
    }
  }
  if (length <= 0) return Status::ended;
  const auto message = decode(Bytes(bytes).first(static_cast<std::size_t>(length)));
  if (!message || (envelope.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Status::ended;
  out.message = *message;
  return Status::received;
}

proto::local::Reach Link::reach() const {
  return {page().sides[1 - side_].reads.load() != 0, page().sides[side_].reads.load() != 0};
}

// Process ids are used again: that it lives afterwards shows that it was this process all the time.
Link::Copied Link::read(std::uint64_t address, MutableBytes to) {
  while (!to.empty()) {
    const ssize_t copied = copy_from(peer_, address, to.data(), to.size());
    if (copied <= 0) {
      if (copied < 0 && errno == EINTR) continue;
      std::byte probe;
      return copy_from(peer_, address, &probe, 1) == 1 && lives() ? Copied::here : Copied::there;
    }
    address += static_cast<std::uint64_t>(copied);
    to = to.subspan(static_cast<std::size_t>(copied));
  }
  return lives() ? Copied::ok : Copied::there;
}

void Link::wake_peer() {
  auto& sleeps = page().sides[1 - side_].sleeps;
  // Both sides change the flag in one step: whoever goes to sleep later sees what was published before, or
  // its flag is seen here.
  if (sleeps.fetch_add(0) == 0 || sleeps.exchange(0) == 0) return;
  Message wake;
  wake.kind = Kind::wake;
  (void)send(wake);  // a full socket means that it has much to read: it is awake
}

void Link::set_sleeping(bool sleeps) {
  if (is_open()) page().sides[side_].sleeps.exchange(sleeps ? 1 : 0);
}

void Link::abandon() {
  socket_.reset();
  process_.reset();
  page_.abandon();
}

}  // namespace beeline::nic::local
