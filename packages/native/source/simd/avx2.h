/**
 * Verbs of the level avx2: 8 lanes, 8-bit dot products by `vpmaddubsw`, whose 16-bit sums saturate. Codes of up to six bits are
 * summed in 16 bits as often as they fit; for codes of eight bits, activations come as magnitudes [32] and signs [32], see
 * `storeSignMagnitude` in quantize-activations.h.
 */
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "../runtime/level.h"

namespace WINNOW_NAMESPACE {

using Floats = __m256;
using Ints = __m256i;
constexpr int LANES = 8;
/** Vectors of rows that a qgemm microkernel takes at once: their codes fill half of the registers. */
constexpr int ROW_VECTORS = 1;
/** Tokens of the register tile of f32 GEMM, which has two vectors of rows. */
constexpr int FLOAT_TILE_TOKENS = 6;

inline Floats splatF(float value) { return _mm256_set1_ps(value); }
inline Floats load(const float* from) { return _mm256_loadu_ps(from); }
inline void store(float* to, Floats value) { _mm256_storeu_ps(to, value); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
/** a * b + c */
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
/** -1 in the first `count` lanes, else 0. */
inline __m256i firstLanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
/** The first `count` lanes, zeros in the others. */
inline Floats loadUpTo(const float* from, int count) { return _mm256_maskload_ps(from, firstLanes(count)); }
inline void storeUpTo(float* to, Floats value, int count) { _mm256_maskstore_ps(to, firstLanes(count), value); }

/** Stores the columns of a 4x4 matrix of floats, `stride` floats apart; the arguments are its rows. */
inline void storeColumns(const float* a, const float* b, const float* c, const float* d, float* to, size_t stride) {
  __m128 rows[4] = {_mm_loadu_ps(a), _mm_loadu_ps(b), _mm_loadu_ps(c), _mm_loadu_ps(d)};
  _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
  for (size_t i = 0; i < 4; i++) _mm_storeu_ps(to + i * stride, rows[i]);
}

inline Ints splatI(int32_t value) { return _mm256_set1_epi32(value); }
inline Ints loadI(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
inline void storeI(void* to, Ints value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }
inline Ints addI(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints subI(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
inline Ints maxI(Ints a, Ints b) { return _mm256_max_epi32(a, b); }
/** Reduces by a function of two vectors of four lanes. */
template <class F> inline int32_t reduce(Ints a, F combine) {
  __m128i v = combine(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  v = combine(v, _mm_shuffle_epi32(v, 0x4e));
  return _mm_cvtsi128_si32(combine(v, _mm_shuffle_epi32(v, 0xb1)));
}
inline int32_t reduceAdd(Ints a) {
  return reduce(a, [](__m128i b, __m128i c) { return _mm_add_epi32(b, c); });
}
inline int32_t reduceMax(Ints a) {
  return reduce(a, [](__m128i b, __m128i c) { return _mm_max_epi32(b, c); });
}
inline Ints bitAnd(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints bitOr(Ints a, Ints b) { return _mm256_or_si256(a, b); }
/** Lanes shifted to the right, zeros from the left; bits move between the bytes of a lane. */
template <int BITS> inline Ints shiftRight(Ints a) { return _mm256_srli_epi32(a, BITS); }
template <int BITS> inline Ints shiftLeft(Ints a) { return _mm256_slli_epi32(a, BITS); }
template <int BITS> inline Ints shiftRightSigned(Ints a) { return _mm256_srai_epi32(a, BITS); }
/** The same with a count for each lane. */
inline Ints shiftRightBy(Ints a, Ints counts) { return _mm256_srlv_epi32(a, counts); }
inline Ints shiftLeftBy(Ints a, Ints counts) { return _mm256_sllv_epi32(a, counts); }
inline Ints bitsOf(Floats a) { return _mm256_castps_si256(a); }
/** The lanes as bytes, saturated. */
inline __m128i packBytes(Ints a) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  return _mm_packs_epi16(words, words);
}
inline void storeBytes(uint8_t* to, Ints a) { _mm_storel_epi64(reinterpret_cast<__m128i*>(to), packBytes(a)); }
inline Floats toFloat(Ints a) { return _mm256_cvtepi32_ps(a); }
/** The 4 bytes at `from` in every lane. */
inline Ints splatBytes(const uint8_t* from) {
  int32_t word;
  memcpy(&word, from, 4);
  return _mm256_set1_epi32(word);
}

/** Parts of 128 bits. */
constexpr int PARTS = LANES / 4;

/** The same 16 bytes in every part. */
inline Ints splatPart(const uint8_t* from) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
/** The same four binary16 in every part. */
inline Floats splatHalves(const uint8_t* from) {
  int64_t halves;
  memcpy(&halves, from, 8);
  return _mm256_cvtph_ps(_mm_set1_epi64x(halves));
}
/** `value` in the lanes of the first part, zeros in the others. */
inline Ints firstPart(int32_t value) { return _mm256_zextsi128_si256(_mm_set1_epi32(value)); }
/** The number of its part in every lane. */
inline Ints partIndices() { return _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1); }
/** Stores the sum of the parts. */
inline void storePartSum(float* to, Floats a) {
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
}

/** Addresses of PARTS groups: each part of a vector comes from one of them. */
struct Groups {
  const uint8_t* at[PARTS];
};

/** 16 bytes of each group. */
inline Ints loadGroups(const Groups& groups, size_t offset) {
  const auto part = [&](int i) { return reinterpret_cast<const __m128i*>(groups.at[i] + offset); };
  return _mm256_loadu2_m128i(part(1), part(0));
}

/** Four binary16 of each group. */
inline Floats loadGroupHalves(const Groups& groups, size_t offset) {
  const auto part = [&](int i) {
    int64_t halves;
    memcpy(&halves, groups.at[i] + offset, 8);
    return halves;
  };
  return _mm256_cvtph_ps(_mm_set_epi64x(part(1), part(0)));
}

/** Bytes of the codes of a block of 32 activations in the form for weights of BITS bits. */
template <int BITS> constexpr int CODE_BYTES = BITS == 8 ? 64 : 32;
/**
 * Stores LANES codes as magnitudes at `to` and signs at `to + 32`: 128 where a code is positive and 127 where it is negative. XOR
 * with signs makes unsigned codes of weights signed and applies the sign of x, but is one too small where x is negative, because
 * `-y = ~y + 1`: sums start with the magnitudes of negative codes, whose sum is returned.
 */
inline int32_t storeSignMagnitude(uint8_t* to, Ints codes) {
  const __m128i bytes = packBytes(codes);
  const __m128i isNegative = _mm_cmpgt_epi8(_mm_setzero_si128(), bytes);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_abs_epi8(bytes));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 32), _mm_xor_si128(isNegative, _mm_set1_epi8(-128)));
  return -reduceAdd(_mm256_min_epi32(codes, _mm256_setzero_si256()));
}
/** How many 16-bit sums of two products with codes of BITS bits fit 16 bits: `8 * 2 * 15 * 127 < 2^15`. */
template <int BITS> constexpr int PAIR_SUMS = BITS <= 4 ? 8 : BITS == 5 ? 4 : BITS == 6 ? 2 : 1;

/** 16-bit sums of two products; `signs` are only read for codes of eight bits. */
template <int BITS> inline Ints pairSums(Ints codes, Ints x, const Ints& signs) {
  if constexpr (BITS < 8) return _mm256_maddubs_epi16(codes, x);
  return _mm256_maddubs_epi16(x, _mm256_xor_si256(codes, signs));
}
template <int BITS> inline Ints splatPairSums(Ints codes, const uint8_t* x) {
  return pairSums<BITS>(codes, splatBytes(x), BITS < 8 ? codes : splatBytes(x + 32));
}
inline Ints addPairs(Ints sum, Ints pairs) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/**
 * Adds the products of COUNT vectors of codes, unsigned with BITS bits, and as many of activations, in which every four are
 * repeated for the four rows of a part. Signs come 128 bytes after magnitudes.
 */
template <int BITS, int COUNT> inline Ints dotRepeated(const Ints (&codes)[COUNT], const uint8_t* x, Ints sum) {
  constexpr int RUN = PAIR_SUMS<BITS> < COUNT ? PAIR_SUMS<BITS> : COUNT;
  const auto pairsOf = [&](int i) {
    const uint8_t* at = x + i * sizeof(Ints);
    return pairSums<BITS>(codes[i], loadI(at), BITS < 8 ? codes[i] : loadI(at + 128));
  };
#pragma GCC unroll 4
  for (int run = 0; run < COUNT; run += RUN) {
    Ints pairs = pairsOf(run);
#pragma GCC unroll 4
    for (int i = run + 1; i < run + RUN; i++) pairs = _mm256_add_epi16(pairs, pairsOf(i));
    sum = addPairs(sum, pairs);
  }
  return sum;
}

/** Tokens that a qgemm microkernel interleaves, to hide the latency of dot products. */
constexpr int TILE_TOKENS = 1;

/**
 * Adds the products of words [FROM, TO) of blocks: a lane's four codes, unsigned with BITS bits, times four activations of each
 * token; `x` are the codes of consecutive tokens.
 */
template <int BITS, int FROM, int TO, int VECTORS>
inline void dotTile(const Ints (&codes)[VECTORS][8], const uint8_t* x, Ints (&sums)[TILE_TOKENS][VECTORS]) {
  constexpr int COUNT = PAIR_SUMS<BITS> < TO - FROM ? PAIR_SUMS<BITS> : TO - FROM;
#pragma GCC unroll 8
  for (int run = FROM; run < TO; run += COUNT) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
#pragma GCC unroll 4
      for (int t = 0; t < TILE_TOKENS; t++) {
        const uint8_t* at = x + t * CODE_BYTES<BITS>;
        Ints pairs = splatPairSums<BITS>(codes[v][run], at + 4 * run);
#pragma GCC unroll 8
        for (int j = run + 1; j < run + COUNT; j++) pairs = _mm256_add_epi16(pairs, splatPairSums<BITS>(codes[v][j], at + 4 * j));
        sums[t][v] = addPairs(sums[t][v], pairs);
      }
    }
  }
}

}  // namespace WINNOW_NAMESPACE
