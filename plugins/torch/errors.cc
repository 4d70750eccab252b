#include "errors.h"

#include <c10/util/Exception.h>

namespace beeline::pytorch {

namespace {

template <class E>
std::exception_ptr make(const std::string& message) {
  return std::make_exception_ptr(E({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message));
}

}  // namespace

std::exception_ptr as_exception(beeline_status status, const std::string& message) {
  switch (status) {
    case BEELINE_INVALID_ARGUMENT:
      return make<c10::ValueError>(message);
    case BEELINE_UNSUPPORTED:
      return make<c10::NotImplementedError>(message);
    default:
      return make<c10::DistBackendError>(message);
  }
}

}  // namespace beeline::pytorch
