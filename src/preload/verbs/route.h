// Whose object is it? Calls about the card's go to its provider, calls about the machine's devices to the
// real libibverbs, and anything else (freed, corrupted, from before a fork) is refused.
#pragma once

#include <cerrno>
#include <type_traits>

#include "preload/engine.h"
#include "preload/verbs/real.h"

namespace beeline::preload {

// How a function of libibverbs says no.
enum class Refusal : bool { error_number, minus_one };

template <class R, Refusal how = Refusal::error_number>
R refuse(int error) {
  errno = error;
  if constexpr (std::is_pointer_v<R>) {
    return nullptr;
  } else if constexpr (!std::is_void_v<R>) {
    return static_cast<R>(how == Refusal::minus_one ? -1 : error);
  }
}

// The card's provider when `object` is one of its live ones.
template <class T>
verbs::FullProvider* owner_of(const T* object) {
  verbs::FullProvider* provider = engine_if_any().provider;
  return provider != nullptr && object != nullptr && provider->owns(object) ? provider : nullptr;
}

inline bool is_real(const ibv_context* context) {
  return real_devices().any() && context != nullptr && real_devices().has(context->device);
}
template <class T>
bool is_real(const T* object) {
  return real_devices().any() && object != nullptr && is_real(object->context);
}

// Calls the real library's function, which an older one may lack.
template <auto theirs, Refusal how, class... Args>
auto call_real(Args... args) {
  const auto function = real_functions().*theirs;
  using R = decltype(function(args...));
  return function != nullptr ? function(args...) : refuse<R, how>(EOPNOTSUPP);
}

// The call for a function that both sides have, under the same signature.
template <auto ours, auto theirs, Refusal how = Refusal::error_number, class T, class... Args>
auto route(T* object, Args... args) {
  using R = decltype((real_functions().*theirs)(object, args...));
  if (auto* provider = owner_of(object)) return static_cast<R>((provider->*ours)(object, args...));
  if (is_real(object)) return call_real<theirs, how>(object, args...);
  return refuse<R, how>(EINVAL);
}

// The call for what the card does not offer.
template <auto theirs, Refusal how = Refusal::error_number, class T, class... Args>
auto only_real(T* object, Args... args) {
  using R = decltype((real_functions().*theirs)(object, args...));
  if (owner_of(object) != nullptr) return refuse<R, how>(EOPNOTSUPP);
  if (is_real(object)) return call_real<theirs, how>(object, args...);
  return refuse<R, how>(EINVAL);
}

}  // namespace beeline::preload
