// Memory that two processes share: a sealed memfd and its mapping.
#pragma once

#include <cstddef>

#include "base/descriptor.h"
#include "base/result.h"

namespace beeline::nic::local {

class SharedMemory {
 public:
  SharedMemory() = default;
  // All zero, of this size for good: whoever has it mapped never meets its end (SIGBUS).
  static Result<SharedMemory> create(const char* name, std::size_t bytes);
  // What a peer sent. Refused unless it is such memory, of this size.
  static Result<SharedMemory> adopt(Descriptor file, std::size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  void* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }
  int descriptor() const { return file_.get(); }
  // The mapping stays.
  void close_file() { file_.reset(); }
  // In the child of a fork: the mapping was not inherited, and something else may lie there.
  void abandon();

 private:
  static Result<SharedMemory> map(Descriptor file, std::size_t bytes);

  Descriptor file_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace beeline::nic::local
