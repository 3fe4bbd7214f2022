#include "plain-rows.h"

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

void dequantizeQ4(const uint8_t* at, float* to) {
  const float d = halfToFloat(at);
  for (int i = 0; i < 16; i++) {
    to[i] = d * ((at[2 + i] & 15) - 8);
    to[i + 16] = d * ((at[2 + i] >> 4) - 8);
  }
}

void dequantizeQ45K(const uint8_t* at, bool hasFifth, float* to) {
  const float d = halfToFloat(at);
  const float dmin = halfToFloat(at + 2);
  const uint8_t* nibbles = at + (hasFifth ? 48 : 16);
  for (int sub = 0; sub < 8; sub++) {
    const float scale = d * static_cast<float>(sixBits(at + 4, sub, 0));
    const float offset = dmin * static_cast<float>(sixBits(at + 4, sub, 4));
    for (int i = 0; i < 32; i++) {
      const int fifth = hasFifth ? (at[16 + i] >> sub & 1) << 4 : 0;
      const int code = (nibbles[sub / 2 * 32 + i] >> (sub % 2 * 4) & 15) | fifth;
      to[sub * 32 + i] = scale * static_cast<float>(code) - offset;
    }
  }
}

void dequantizeQ6K(const uint8_t* at, float* to) {
  const float d = halfToFloat(at + 208);
  for (int i = 0; i < 256; i++) {
    const int nibble = at[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
    const int pair = at[128 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    to[i] = d * static_cast<int8_t>(at[192 + i / 16]) * static_cast<float>((nibble | pair << 4) - 32);
  }
}

}  // namespace

void dequantizeRow(int32_t dtype, const uint8_t* row, int32_t numColumns, float* to) {
  const int blockSize = dtype == Q8_0 || dtype == Q4_0 ? 32 : 256;
  const size_t blockBytes = bytesOf(dtype, static_cast<uint64_t>(blockSize));
  for (const float* end = to + numColumns; to < end; to += blockSize, row += blockBytes) {
    if (dtype == Q8_0) dequantizeQ8(row, to);
    else if (dtype == Q4_0) dequantizeQ4(row, to);
    else if (dtype == Q6_K) dequantizeQ6K(row, to);
    else dequantizeQ45K(row, dtype == Q5_K, to);
  }
}

float dotFloats(const float* a, const float* b, int32_t count) {
  Floats even = splatF(0);
  Floats odd = splatF(0);
  for (int i = 0; i < count; i += 2 * LANES) {
    even = fma(load(a + i), load(b + i), even);
    odd = fma(load(a + i + LANES), load(b + i + LANES), odd);
  }
  float parts[4];
  storePartSum(parts, add(even, odd));
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

}  // namespace WINNOW_NAMESPACE
