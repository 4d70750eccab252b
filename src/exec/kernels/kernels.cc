#include "exec/kernels/kernels.h"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/kernels/kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace beeline::exec::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- operations on vectors of one arithmetic type

struct Sum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

// One definition for all processors: their own maximum instructions differ in NaN and -0.
struct Max {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>())
      return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
    else
      return hn::Max(a, b);
  }
};

struct DivideBy {
  float divisor;
  template <class V>
  HWY_INLINE V operator()(V a, V) const {
    return hn::Div(a, hn::Set(hn::DFromV<V>(), divisor));
  }
};

// ---- how elements are loaded and stored

// An element type that the processor calculates with.
template <class T>
struct Native {
  using Element = T;
  using D = hn::ScalableTag<T>;
  static HWY_INLINE hn::Vec<D> load(D d, const T* from) { return hn::LoadU(d, from); }
  static HWY_INLINE void store(D d, hn::Vec<D> value, T* to) { hn::StoreU(value, d, to); }
};

// bfloat16: the upper half of a float32.
struct BFloat16 {
  using Element = std::uint16_t;
  using D = hn::ScalableTag<float>;
  using Wide = hn::RebindToUnsigned<D>;
  using Narrow = hn::Rebind<std::uint16_t, D>;

  static HWY_INLINE hn::Vec<D> load(D d, const std::uint16_t* from) {
    const hn::Vec<Wide> bits = hn::PromoteTo(Wide(), hn::LoadU(Narrow(), from));
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
  }

  static HWY_INLINE void store(D, hn::Vec<D> value, std::uint16_t* to) {
    const Wide wide;
    const hn::RebindToSigned<D> narrowing;  // Highway narrows from signed numbers
    const hn::Vec<Wide> bits = hn::BitCast(wide, value);
    const hn::Vec<Wide> last_kept_bit = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1));
    const hn::Vec<Wide> nearest = hn::Add(bits, hn::Add(last_kept_bit, hn::Set(wide, 0x7FFF)));
    // A NaN stays one: rounding could carry it to infinity, cutting could empty its payload.
    const hn::Vec<Wide> quiet = hn::Or(bits, hn::Set(wide, 0x400000));
    const auto is_nan = hn::RebindMask(wide, hn::IsNaN(value));
    const hn::Vec<Wide> result = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, nearest));
    hn::StoreU(hn::DemoteTo(Narrow(), hn::BitCast(narrowing, result)), Narrow(), to);
  }
};

// The rest that fills no vector goes through small arrays, so that it is computed like all others.
template <class Format, class Op>
void for_each(const void* a_bytes, const void* b_bytes, void* out_bytes, std::size_t count, Op op) {
  using Element = typename Format::Element;
  const typename Format::D d;
  const std::size_t lanes = hn::Lanes(d);
  const auto *a = static_cast<const Element*>(a_bytes), *b = static_cast<const Element*>(b_bytes);
  auto* out = static_cast<Element*>(out_bytes);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    Format::store(d, op(Format::load(d, a + i), Format::load(d, b + i)), out + i);
  if (i == count) return;

  constexpr std::size_t most_lanes = HWY_MAX_BYTES;
  HWY_ALIGN Element rest_a[most_lanes] = {}, rest_b[most_lanes] = {};
  std::memcpy(rest_a, a + i, (count - i) * sizeof(Element));
  std::memcpy(rest_b, b + i, (count - i) * sizeof(Element));
  Format::store(d, op(Format::load(d, rest_a), Format::load(d, rest_b)), rest_a);
  std::memcpy(out + i, rest_a, (count - i) * sizeof(Element));
}

template <class Format>
void reduce_as(RedOp op, const void* a, const void* b, void* out, std::size_t count) {
  if (op == RedOp::max)
    for_each<Format>(a, b, out, count, Max{});
  else
    for_each<Format>(a, b, out, count, Sum{});
}

void reduce_elements(DType dtype, RedOp op, const void* a, const void* b, void* out, std::size_t count) {
  switch (dtype) {
    case DType::float32:
      return reduce_as<Native<float>>(op, a, b, out, count);
    case DType::bfloat16:
      return reduce_as<BFloat16>(op, a, b, out, count);
    case DType::int32:
      return reduce_as<Native<std::int32_t>>(op, a, b, out, count);
    case DType::int64:
      return reduce_as<Native<std::int64_t>>(op, a, b, out, count);
    case DType::uint8:
      return reduce_as<Native<std::uint8_t>>(op, a, b, out, count);
  }
}

void divide_floats(void* data, std::size_t count, float divisor) {
  for_each<Native<float>>(data, data, data, count, DivideBy{divisor});
}
void divide_bfloats(void* data, std::size_t count, float divisor) {
  for_each<BFloat16>(data, data, data, count, DivideBy{divisor});
}

}  // namespace beeline::exec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace beeline::exec {
namespace {

HWY_EXPORT(reduce_elements);
HWY_EXPORT(divide_floats);
HWY_EXPORT(divide_bfloats);

template <class T>
void divide_integers(void* data, std::size_t count, int divisor) {
  auto* bytes = static_cast<std::byte*>(data);
  for (std::size_t i = 0; i < count; ++i, bytes += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    value = static_cast<T>(value / divisor);  // a byte is divided as int: the divisor may exceed 255
    std::memcpy(bytes, &value, sizeof value);
  }
}

}  // namespace

void reduce(DType dtype, RedOp op, const void* a, const void* b, void* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(reduce_elements)(dtype, op, a, b, out, count);
}

void divide(DType dtype, void* data, std::size_t count, int divisor) {
  if (divisor == 1) return;
  switch (dtype) {
    case DType::float32:
      return HWY_DYNAMIC_DISPATCH(divide_floats)(data, count, static_cast<float>(divisor));
    case DType::bfloat16:
      return HWY_DYNAMIC_DISPATCH(divide_bfloats)(data, count, static_cast<float>(divisor));
    case DType::int32:
      return divide_integers<std::int32_t>(data, count, divisor);
    case DType::int64:
      return divide_integers<std::int64_t>(data, count, divisor);
    case DType::uint8:
      return divide_integers<std::uint8_t>(data, count, divisor);
  }
}

}  // namespace beeline::exec
#endif  // HWY_ONCE
