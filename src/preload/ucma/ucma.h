// The character device /dev/infiniband/rdma_cm, emulated for the real librdmacm. The libc hooks
// (files/) open it here and bring every call on its descriptors here; nothing else of libc is touched.
//
// An emulated device is a real descriptor that a program may poll, put into epoll, set O_NONBLOCK on and
// read the flags of: those calls go to the kernel. Conventions of the system calls: -1 and errno.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>

namespace beeline::preload::ucma {

// `flags` as for open(): O_CLOEXEC and O_NONBLOCK are honoured.
int open_device(int flags);

// Asked at every write, close, fstat and dup of the process, also in signal handlers and before
// constructors have run: no lock, no allocation, cheap for descriptors of others.
bool owns(int fd) noexcept;

// Below: only for descriptors that owns() says yes to.

// Whether it still is what it was: it may have been closed, and its number used again, where nobody hooks
// that (a system call of the program's own, fclose). Then it is the device's no longer.
bool still_has(int fd);

// One command (struct rdma_ucm_cmd_hdr and its body); answers are written where the body says.
ssize_t write(int fd, const void* bytes, std::size_t count);
int fstat(int fd, struct stat* out);  // a character device
int close(int fd);                    // the descriptor too; the device ends with its last descriptor

// `to` is a new descriptor of the same device: dup, dup2, dup3 or fcntl(F_DUPFD) has just succeeded.
void duplicated(int from, int to);
// The kernel closes `fd` in passing (dup2 onto it, close_range): it is no longer of the device. Comes before
// a duplicated() of the same number.
void forget(int fd);

// In the child of a fork, after the engine is gone: devices of the parent answer nothing any more.
void abandon_after_fork();

}  // namespace beeline::preload::ucma
