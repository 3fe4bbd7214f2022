/** Activations of N floats, with the formulas of the interpreter (pointwise.ts). */
#pragma once
#include <math.h>
#include <initializer_list>
#include "../generated/operands/glu.h"
#include "../simd/simd.h"

namespace WINNOW_NAMESPACE {
/** exp, relative error below 1.5e-7; 0 and Inf beyond the range, NaN is preserved. Coefficients: expf of the Cephes library. */
template <int N> inline FloatVector<N> expAnywhere(FloatVector<N> x) {
  constexpr float magic = 0x1.8p23f;
  // a comparison with NaN is false
  x = x < -104.0f ? splatTo<N>(-104) : x;
  x = x > 89.0f ? splatTo<N>(89) : x;
  const auto shifted = fma(x, splatTo<N>(1.4426950408889634f), splatTo<N>(magic));
  const auto n = shifted - magic;
  const auto r = fma(n, splatTo<N>(2.1219444e-4f), x - n * 0.693359375f);
  auto p = splatTo<N>(1.98756915e-4f);
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
    p = fma(p, r, splatTo<N>(c));
  }
  const auto value = fma(p, r * r, r) + 1;
  // two factors, so that the ends of the range neither overflow early nor lose the denormals
  const auto exponent = reinterpret_cast<IntVector<N>>(shifted) - reinterpret_cast<IntVector<N>>(splatTo<N>(magic));
  const auto half = exponent >> 1;
  const auto first = value * reinterpret_cast<FloatVector<N>>((half + 127) << 23);
  return first * reinterpret_cast<FloatVector<N>>((exponent - half + 127) << 23);
}

template <int N> inline FloatVector<N> activate(int32_t kind, FloatVector<N> x) {
  using namespace operands::glu;
  const FloatVector<N> none = {};
  if (kind == KIND_SILU) return x / (1 + expAnywhere<N>(-x));
  // 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2 u)), without cancellation where tanh is near -1
  if (kind == KIND_GELU_TANH) return x / (1 + expAnywhere<N>(-1.5957691216057308f * fma(0.044715f * (x * x), x, x)));
  if (kind == KIND_RELU) return x <= 0.0f ? none : x;
  if (kind == KIND_RELU2) return x <= 0.0f ? none : x * x;
  if (kind == KIND_SIGMOID) return 1 / (1 + expAnywhere<N>(-x));
  for (int i = 0; i < N; i++) x[i] = static_cast<float>(0.5 * x[i] * erfc(x[i] * -0.7071067811865476));
  return x;
}
}  // namespace WINNOW_NAMESPACE
