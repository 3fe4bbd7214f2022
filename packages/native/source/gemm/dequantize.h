/** Rows in the layout of files as f32. */
#pragma once
#include "../generated/dtypes.h"
#include "../simd/simd.h"

namespace WINNOW_NAMESPACE {
/** Whether rows of this type can be dequantized. */
bool canDequantize(int32_t dtype);

/** The numbers of the codes of q4_0. */
inline constexpr int8_t q4Values[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};

/** Dequantizes `count` values, whole blocks, followed by zeros up to a multiple of LANES. */
void dequantize(int32_t dtype, const uint8_t* from, int32_t count, float* to);

/** The dot product of two vectors. */
float dotFloats(const float* a, const float* b, int32_t count);
}  // namespace WINNOW_NAMESPACE
