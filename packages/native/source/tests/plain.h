/** The formulations that tests compare kernels with: one value at a time, from the formats of files. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <initializer_list>
#include <vector>
#include "../generated/dtypes.h"

namespace plain {

using Bytes = std::vector<uint8_t>;

/** A small generator of random numbers (xorshift), the same on every machine. */
struct Random {
  uint64_t state = 88172645463325252u;
  uint32_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>(state >> 32);
  }
  /** Between -1 and 1. */
  float value() { return static_cast<float>(next()) / 2147483648.0f - 1; }
};

inline float halfToFloat(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const float magnitude = exponent == 0 ? ldexpf(bits & 1023, -24) : ldexpf((bits & 1023) | 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/** Nearest binary16 of a magnitude below 2^15. */
inline uint16_t halfOf(float value) {
  const float magnitude = fabsf(value);
  int exponent = 0;
  frexpf(magnitude, &exponent);
  const int scale = exponent - 11 < -24 ? -24 : exponent - 11;
  const int mantissa = static_cast<int>(nearbyintf(ldexpf(magnitude, -scale)));
  // a mantissa of 2048 carries into the exponent, and one below 1024 is that of a denormal number
  const int bits = mantissa < 1024 ? mantissa : mantissa - 1024 + ((scale + 25) << 10);
  return static_cast<uint16_t>(bits | (value < 0 ? 0x8000 : 0));
}

inline uint16_t wordAt(const uint8_t* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }

inline int blockSizeOf(int32_t dtype) { return dtype == winnow::Q8_0 || dtype == winnow::Q4_0 ? 32 : 256; }

/** Six-bit scale or min of a sub-block of q4_K and q5_K. */
inline int sixBits(const uint8_t* at, int sub, bool isMin) {
  const int shift = isMin ? 4 : 0;
  if (sub < 4) return at[sub + shift] & 63;
  return ((at[sub + 4] >> shift) & 15) | (at[sub - 4 + shift] >> 6) << 4;
}

/** Value `i` of a row. */
inline double valueAt(int32_t dtype, const uint8_t* row, int i) {
  if (dtype == winnow::F16) return halfToFloat(wordAt(row + 2 * i));
  if (dtype == winnow::F32 || dtype == winnow::BF16) {
    uint32_t bits = 0;
    if (dtype == winnow::F32) memcpy(&bits, row + 4 * i, 4);
    else bits = static_cast<uint32_t>(wordAt(row + 2 * i)) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
  }
  const uint8_t* at = row + winnow::bytesOf(dtype, static_cast<uint64_t>(i / blockSizeOf(dtype) * blockSizeOf(dtype)));
  i %= blockSizeOf(dtype);
  const int sub = i / 32;
  const int part = i % 32;
  if (dtype == winnow::Q8_0) return halfToFloat(wordAt(at)) * static_cast<double>(static_cast<int8_t>(at[2 + i]));
  if (dtype == winnow::Q4_0) return halfToFloat(wordAt(at)) * static_cast<double>((at[2 + i % 16] >> (i / 16 * 4) & 15) - 8);
  if (dtype == winnow::Q6_K) {
    const int pair = at[128 + i / 128 * 32 + part] >> (i % 128 / 32 * 2) & 3;
    const int code = (at[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15) | pair << 4;
    return static_cast<double>(halfToFloat(wordAt(at + 208))) * static_cast<int8_t>(at[192 + i / 16]) * (code - 32);
  }
  const bool hasFifth = dtype == winnow::Q5_K;
  const int nibble = at[(hasFifth ? 48 : 16) + sub / 2 * 32 + part] >> (sub % 2 * 4) & 15;
  const int code = nibble | (hasFifth ? (at[16 + part] >> sub & 1) << 4 : 0);
  return static_cast<double>(halfToFloat(wordAt(at))) * sixBits(at + 4, sub, false) * code -
         static_cast<double>(halfToFloat(wordAt(at + 2))) * sixBits(at + 4, sub, true);
}

/** Random rows with scales of usual sizes. */
inline Bytes randomRows(int32_t dtype, int numRows, int numColumns, Random& random) {
  const size_t blockBytes = winnow::bytesOf(dtype, blockSizeOf(dtype));
  Bytes rows(static_cast<size_t>(numRows) * (numColumns / blockSizeOf(dtype)) * blockBytes);
  for (uint8_t& byte : rows) byte = static_cast<uint8_t>(random.next());
  for (size_t at = 0; at < rows.size(); at += blockBytes) {
    const size_t scale = dtype == winnow::Q6_K ? 208 : 0;
    const uint16_t first = halfOf(random.value() * 0.01f);
    const uint16_t second = halfOf(random.value() * 0.01f);
    memcpy(&rows[at + scale], &first, 2);
    if (dtype == winnow::Q4_K || dtype == winnow::Q5_K) memcpy(&rows[at + 2], &second, 2);
  }
  return rows;
}

/** Interleaves whole groups of four rows as `repack.ts` of the interpreter does. */
inline Bytes interleave(int32_t dtype, const Bytes& rows, int numRows) {
  const size_t rowBytes = rows.size() / static_cast<size_t>(numRows);
  const size_t blockBytes = winnow::bytesOf(dtype, blockSizeOf(dtype));
  const bool hasMins = dtype == winnow::Q4_K || dtype == winnow::Q5_K;
  const size_t scalesAt = dtype == winnow::Q6_K ? 208 : 0;
  Bytes result;
  for (int group = 0; group + 4 <= numRows; group += 4) {
    for (size_t block = 0; block < rowBytes; block += blockBytes) {
      const auto at = [&](int row, size_t offset) { return &rows[static_cast<size_t>(group + row) * rowBytes + block + offset]; };
      const auto words = [&](size_t from, size_t end) {
        for (size_t word = from; word < end; word += 4)
          for (int row = 0; row < 4; row++)
            for (size_t i = 0; i < 4; i++) result.push_back(static_cast<uint8_t>(*at(row, word + i) ^ (dtype == winnow::Q8_0 ? 128 : 0)));
      };
      for (size_t scale = 0; scale < (hasMins ? 4 : 2); scale += 2) {
        for (int row = 0; row < 4; row++) {
          const uint16_t bits = halfOf(halfToFloat(wordAt(at(row, scalesAt + scale))) * 1024);
          result.push_back(static_cast<uint8_t>(bits));
          result.push_back(static_cast<uint8_t>(bits >> 8));
        }
      }
      if (dtype == winnow::Q6_K) {
        words(192, 208);
        words(0, 192);
      } else {
        words(hasMins ? 4 : 2, blockBytes);
      }
    }
  }
  result.insert(result.end(), rows.end() - static_cast<long>(static_cast<size_t>(numRows % 4) * rowBytes), rows.end());
  return result;
}

/** Activations as 8-bit codes, then as the numbers that they stand for. */
inline std::vector<double> quantized(const std::vector<float>& x) {
  std::vector<double> result(x.size());
  for (size_t block = 0; block < x.size(); block += 32) {
    float largest = 0;
    for (size_t i = block; i < block + 32; i++) largest = fmaxf(largest, fabsf(x[i]));
    const float d = largest / 127;
    for (size_t i = block; i < block + 32; i++) result[i] = largest == 0 ? 0 : static_cast<double>(d) * nearbyintf(x[i] * (127 / largest));
  }
  return result;
}

}  // namespace plain
