// PyTorch's key-value store, as libbeeline wants one.
#pragma once

#include <beeline/beeline.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace beeline::pytorch {

class StoreAdapter {
 public:
  explicit StoreAdapter(c10::intrusive_ptr<c10d::Store> store);
  StoreAdapter(const StoreAdapter&) = delete;
  StoreAdapter& operator=(const StoreAdapter&) = delete;

  // Valid as long as this object.
  const beeline_store* callbacks() const { return &callbacks_; }
  // What the store itself said about its last failure; empty if it had none.
  const std::string& failure() const { return failure_; }

 private:
  static int set(void* user, const char* key, const void* value, std::size_t bytes);
  static int get(void* user, const char* key, void* out, std::size_t capacity, std::size_t* bytes,
                 std::uint64_t timeout_ms);
  int failed(const char* key, const char* reason);

  c10::intrusive_ptr<c10d::Store> store_;
  beeline_store callbacks_;
  std::string failure_;
};

}  // namespace beeline::pytorch
