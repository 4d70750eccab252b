#include "nic/local/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <utility>

namespace beeline::nic::local {
namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) ::munmap(data_, bytes_);
  file_ = std::move(other.file_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<SharedMemory> SharedMemory::create(const char* name, std::size_t bytes) {
  Descriptor file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return fail_errno(errno, "cannot make memory to share (memfd_create)");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return fail_errno(errno, "cannot size memory to share");
  if (::fcntl(file.get(), F_ADD_SEALS, seals) != 0) return fail_errno(errno, "cannot seal memory to share");
  return map(std::move(file), bytes);
}

Result<SharedMemory> SharedMemory::adopt(Descriptor file, std::size_t bytes) {
  struct stat what = {};
  struct statfs where = {};
  const int sealed = ::fcntl(file.get(), F_GET_SEALS);
  if (sealed < 0 || (sealed & seals) != seals || (sealed & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0)
    return fail(Errc::protocol, "a peer offers memory that is not sealed as it must be");
  // Pages of other kinds of memory may not be there when they are touched.
  if (::fstat(file.get(), &what) != 0 || ::fstatfs(file.get(), &where) != 0 || where.f_type != TMPFS_MAGIC ||
      what.st_size != static_cast<off_t>(bytes))
    return fail(Errc::protocol, "a peer offers memory of another size or kind");
  return map(std::move(file), bytes);
}

Result<SharedMemory> SharedMemory::map(Descriptor file, std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return fail_errno(errno, "cannot map memory to share");
  SharedMemory memory;
  memory.data_ = data;
  memory.bytes_ = bytes;
  memory.file_ = std::move(file);
  if (::madvise(data, bytes, MADV_DONTFORK) != 0)
    return fail_errno(errno, "cannot keep shared memory from forked children");
  return memory;
}

void SharedMemory::abandon() {
  file_.reset();
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace beeline::nic::local
