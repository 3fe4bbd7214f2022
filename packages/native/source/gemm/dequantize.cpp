#include "dequantize.h"
#include <math.h>

namespace WINNOW_NAMESPACE {
namespace {
/** Six-bit scale (`shift` 0) or min (`shift` 4) of a sub-block of q4_K and q5_K. */
int sixBits(const uint8_t* at, int sub, int shift) {
  if (sub < 4) return at[sub + shift] & 63;
  return ((at[sub + 4] >> shift) & 15) | (at[sub - 4 + shift] >> 6) << 4;
}

void dequantizeQ8(const uint8_t* at, float* to) {
  const float d = halfToFloat(at);
  for (int i = 0; i < 32; i++) to[i] = d * static_cast<int8_t>(at[2 + i]);
}

constexpr int8_t iq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t mxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/** 32 values of a table by their nibbles: 16 low ones, then 16 high ones. */
void lookUp(const int8_t* table, const uint8_t* nibbles, float d, float* to) {
  FloatVector<LANES> values[32 / LANES];
  NibbleTable(table).load(nibbles, values);
  for (int v = 0; v < 32 / LANES; v++) storeFloats(to + v * LANES, values[v] * d);
}

void dequantizeQ4(const uint8_t* at, float* to) { lookUp(q4Values, at + 2, halfToFloat(at), to); }
void dequantizeIq4(const uint8_t* at, float* to) { lookUp(iq4Values, at + 2, halfToFloat(at), to); }
void dequantizeMxfp4(const uint8_t* at, float* to) { lookUp(mxfp4Values, at + 1, ldexpf(1, at[0] - 128), to); }

void dequantizeIq4Xs(const uint8_t* at, float* to) {
  const int high = at[2] | at[3] << 8;
  for (int sub = 0; sub < 8; sub++) {
    const int scale = (at[4 + sub / 2] >> (sub % 2 * 4) & 15) | (high >> (2 * sub) & 3) << 4;
    lookUp(iq4Values, at + 8 + 16 * sub, halfToFloat(at) * static_cast<float>(scale - 32), to + 32 * sub);
  }
}

void dequantizeQ50(const uint8_t* at, float* to) {
  const float d = halfToFloat(at);
  const auto fifths = loadAs<uint32_t>(at + 2);
  for (int i = 0; i < 16; i++) {
    to[i] = d * static_cast<float>(((at[6 + i] & 15) | static_cast<int>(fifths >> i & 1) << 4) - 16);
    to[i + 16] = d * static_cast<float>((at[6 + i] >> 4 | static_cast<int>(fifths >> (i + 16) & 1) << 4) - 16);
  }
}

/** Runs of 16 values with a scale of their own; bit pairs of half a block of 32 bytes. */
void dequantizeQ2K(const uint8_t* at, float* to) {
  const float d = halfToFloat(at + 80);
  const float dmin = halfToFloat(at + 82);
  for (int run = 0; run < 16; run++) {
    const uint8_t* pairs = at + 16 + run / 8 * 32 + run % 2 * 16;
    const int shift = run % 8 / 2 * 2;
    const float scale = d * static_cast<float>(at[run] & 15);
    const float offset = dmin * static_cast<float>(at[run] >> 4);
    for (int i = 0; i < 16; i++) to[run * 16 + i] = scale * static_cast<float>(pairs[i] >> shift & 3) - offset;
  }
}

void dequantizeQ3K(const uint8_t* at, float* to) {
  const float d = halfToFloat(at + 108);
  const uint8_t* scales = at + 96;
  for (int run = 0; run < 16; run++) {
    const uint8_t* pairs = at + 32 + run / 8 * 32 + run % 2 * 16;
    const uint8_t* thirds = at + run % 2 * 16;
    const int shift = run % 8 / 2 * 2;
    const int low = run < 8 ? scales[run] & 15 : scales[run - 8] >> 4;
    const float scale = d * static_cast<float>((low | (scales[8 + run % 4] >> (run / 4 * 2) & 3) << 4) - 32);
    for (int i = 0; i < 16; i++) {
      const int third = (thirds[i] >> (run / 2) & 1) << 2;
      to[run * 16 + i] = scale * static_cast<float>((pairs[i] >> shift & 3) + third - 4);
    }
  }
}

template <bool HAS_FIFTH> void dequantizeQ45K(const uint8_t* at, float* to) {
  const float d = halfToFloat(at);
  const float dmin = halfToFloat(at + 2);
  const uint8_t* nibbles = at + (HAS_FIFTH ? 48 : 16);
  for (int sub = 0; sub < 8; sub++) {
    const float scale = d * static_cast<float>(sixBits(at + 4, sub, 0));
    const float offset = dmin * static_cast<float>(sixBits(at + 4, sub, 4));
    const int shift = sub % 2 * 4;
    for (int i = 0; i < 32; i++) {
      const int fifth = HAS_FIFTH ? (at[16 + i] >> sub & 1) << 4 : 0;
      const int code = (nibbles[sub / 2 * 32 + i] >> shift & 15) | fifth;
      to[sub * 32 + i] = scale * static_cast<float>(code) - offset;
    }
  }
}

void dequantizeQ6K(const uint8_t* at, float* to) {
  const float d = halfToFloat(at + 208);
  for (int run = 0; run < 16; run++) {
    // 16 values with a scale of their own: nibbles of half a block of 64 bytes, bit pairs of half a block of 32
    const uint8_t* nibbles = at + run / 8 * 64 + run % 4 * 16;
    const uint8_t* pairs = at + 128 + run / 8 * 32 + run % 2 * 16;
    const int shift = run % 8 / 4 * 4;
    const int pairShift = run % 8 / 2 * 2;
    const float scale = d * static_cast<int8_t>(at[192 + run]);
    for (int i = 0; i < 16; i++) {
      const int code = (nibbles[i] >> shift & 15) | (pairs[i] >> pairShift & 3) << 4;
      to[run * 16 + i] = scale * static_cast<float>(code - 32);
    }
  }
}

/** Blocks of SIZE values and BYTES bytes. */
template <int SIZE, size_t BYTES, void (*BLOCK)(const uint8_t*, float*)> void dequantizeBlocks(const uint8_t* from, int count, float* to) {
  for (int i = 0; i < count; i += SIZE, from += BYTES) BLOCK(from, to + i);
}

/** LANES stored numbers at a time by WIDEN; the last ones from a copy. */
template <int BYTES, FloatVector<LANES> (*WIDEN)(const uint8_t*)> void widenAll(const uint8_t* from, int count, float* to) {
  int i = 0;
  for (; i + LANES <= count; i += LANES) storeFloats(to + i, WIDEN(from + static_cast<size_t>(i) * BYTES));
  if (i == count) return;
  uint8_t last[LANES * BYTES] = {};
  memcpy(last, from + static_cast<size_t>(i) * BYTES, static_cast<size_t>(count - i) * BYTES);
  storeFloats(to + i, WIDEN(last));
}

FloatVector<LANES> loadSingles(const uint8_t* from) { return load(reinterpret_cast<const float*>(from)); }

using Dequantizer = void (*)(const uint8_t* from, int count, float* to);

Dequantizer dequantizerOf(int32_t dtype) {
  switch (dtype) {
    case F32: return widenAll<4, loadSingles>;
    case F16: return widenAll<2, loadHalves>;
    case BF16: return widenAll<2, loadBrainFloats>;
    case Q8_0: return dequantizeBlocks<32, Q8_0_BLOCK_BYTES, dequantizeQ8>;
    case Q4_0: return dequantizeBlocks<32, Q4_0_BLOCK_BYTES, dequantizeQ4>;
    case IQ4_NL: return dequantizeBlocks<32, IQ4_NL_BLOCK_BYTES, dequantizeIq4>;
    case MXFP4: return dequantizeBlocks<32, MXFP4_BLOCK_BYTES, dequantizeMxfp4>;
    case Q5_0: return dequantizeBlocks<32, Q5_0_BLOCK_BYTES, dequantizeQ50>;
    case IQ4_XS: return dequantizeBlocks<256, IQ4_XS_BLOCK_BYTES, dequantizeIq4Xs>;
    case Q2_K: return dequantizeBlocks<256, Q2_K_BLOCK_BYTES, dequantizeQ2K>;
    case Q3_K: return dequantizeBlocks<256, Q3_K_BLOCK_BYTES, dequantizeQ3K>;
    case Q4_K: return dequantizeBlocks<256, Q4_K_BLOCK_BYTES, dequantizeQ45K<false>>;
    case Q5_K: return dequantizeBlocks<256, Q5_K_BLOCK_BYTES, dequantizeQ45K<true>>;
    case Q6_K: return dequantizeBlocks<256, Q6_K_BLOCK_BYTES, dequantizeQ6K>;
    default: return nullptr;
  }
}
}  // namespace

bool canDequantize(int32_t dtype) { return dequantizerOf(dtype) != nullptr; }

void dequantize(int32_t dtype, const uint8_t* from, int32_t count, float* to) { dequantizerOf(dtype)(from, count, to); }

float dotFloats(const float* a, const float* b, int32_t count) {
  Floats sums[4] = {splatF(0), splatF(0), splatF(0), splatF(0)};
  int i = 0;
  for (; i + 4 * LANES <= count; i += 4 * LANES) {
#pragma GCC unroll 4
    for (int part = 0; part < 4; part++) sums[part] = fma(load(a + i + part * LANES), load(b + i + part * LANES), sums[part]);
  }
  for (; i < count; i += LANES) {
    const int numLanes = count - i < LANES ? count - i : LANES;
    sums[0] = fma(loadUpTo(a + i, numLanes), loadUpTo(b + i, numLanes), sums[0]);
  }
  float parts[4];
  storePartSum(parts, add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}
}  // namespace WINNOW_NAMESPACE
