#include "store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

namespace beeline::pytorch {

StoreAdapter::StoreAdapter(c10::intrusive_ptr<c10d::Store> store)
    : store_(std::move(store)),
      callbacks_{.user = this, .set = &StoreAdapter::set, .get = &StoreAdapter::get} {}

int StoreAdapter::failed(const char* key, const char* reason) {
  failure_ = std::string("PyTorch's store, key '") + key + "': " + reason;
  return 1;
}

// No exception may pass through the C functions that call these two.
int StoreAdapter::set(void* user, const char* key, const void* value, std::size_t bytes) {
  auto* self = static_cast<StoreAdapter*>(user);
  try {
    const auto* begin = static_cast<const std::uint8_t*>(value);
    self->store_->set(key, std::vector<std::uint8_t>(begin, begin + bytes));
    return 0;
  } catch (const c10::Error& error) {
    return self->failed(key, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return self->failed(key, error.what());
  }
}

int StoreAdapter::get(void* user, const char* key, void* out, std::size_t capacity, std::size_t* bytes,
                      std::uint64_t timeout_ms) {
  auto* self = static_cast<StoreAdapter*>(user);
  try {
    self->store_->wait({key}, std::chrono::milliseconds(timeout_ms));
    const std::vector<std::uint8_t> value = self->store_->get(key);
    *bytes = value.size();
    if (const std::size_t copied = std::min(capacity, value.size()); copied > 0) {
      std::memcpy(out, value.data(), copied);
    }
    return 0;
  } catch (const c10::Error& error) {
    return self->failed(key, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return self->failed(key, error.what());
  }
}

}  // namespace beeline::pytorch
