/**
 * Rows in the layout of files times f32 activations: those beyond the last whole group of repacked weights, at most three.
 */
#pragma once
#include "../generated/dtypes.h"
#include "../simd/float-vectors.h"

namespace WINNOW_NAMESPACE {

/** Dequantizes a row of a type that can be repacked. */
void dequantizeRow(int32_t dtype, const uint8_t* row, int32_t numColumns, float* to);

/** The dot product of two vectors whose length is a multiple of 32. */
float dotFloats(const float* a, const float* b, int32_t count);

}  // namespace WINNOW_NAMESPACE
