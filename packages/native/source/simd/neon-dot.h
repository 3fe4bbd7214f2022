/**
 * 8-bit dot products of arm64. The level neon has `sdot`, signed times signed: codes of up to six bits are what they are, and those of
 * eight bits are flipped, so that they need no initial sum. The level i8mm has `usdot`, and `usmmla` for two rows and two tokens.
 */
#pragma once
#include <utility>

namespace WINNOW_NAMESPACE {
template <int BITS> constexpr int ROW_VECTORS = 2;
template <int BITS> constexpr int CODE_BYTES = 32;
int32_t storeSignMagnitude(uint8_t* to, Ints codes);
constexpr int TILE_TOKENS = 4;

inline uint8x16_t bytesIn(Ints a) { return vreinterpretq_u8_s32(a); }
inline int8x16_t signedIn(Ints a) { return vreinterpretq_s8_s32(a); }

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int32_t Q8_START = -128;
inline Ints addProducts(Ints sum, Ints a, Ints b) { return vusdotq_s32(sum, bytesIn(a), signedIn(b)); }
template <int BITS> inline Ints codesOf(Ints codes) { return codes; }

/** Words J and J + 1 of two tokens: sums of rows 0 and 1, and of rows 2 and 3, with each of them. */
template <int J, int VECTORS>
inline void addSquares(const Ints (&codes)[VECTORS][8], const uint8_t* x, Ints (&low)[VECTORS], Ints (&high)[VECTORS]) {
  const int8x16_t both = vreinterpretq_s8_u8(vcombine_u8(vld1_u8(x + 4 * J), vld1_u8(x + 32 + 4 * J)));
#pragma GCC unroll 2
  for (int v = 0; v < VECTORS; v++) {
    low[v] = vusmmlaq_s32(low[v], bytesIn(vzip1q_s32(codes[v][J], codes[v][J + 1])), both);
    high[v] = vusmmlaq_s32(high[v], bytesIn(vzip2q_s32(codes[v][J], codes[v][J + 1])), both);
  }
}

template <int BITS, int FROM, int TO, int VECTORS>
inline void dotTile(const Ints (&codes)[VECTORS][8], const uint8_t* x, Ints (&sums)[TILE_TOKENS][VECTORS]) {
#pragma GCC unroll 2
  for (int t = 0; t < TILE_TOKENS; t += 2, x += 64) {
    Ints low[VECTORS] = {}, high[VECTORS] = {};
    addSquares<FROM>(codes, x, low, high);
    addSquares<FROM + 2>(codes, x, low, high);
    if constexpr (TO - FROM == 8) {
      addSquares<FROM + 4>(codes, x, low, high);
      addSquares<FROM + 6>(codes, x, low, high);
    }
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++) {
      sums[t][v] += vuzp1q_s32(low[v], high[v]);
      sums[t + 1][v] += vuzp2q_s32(low[v], high[v]);
    }
  }
}
#else
constexpr int32_t Q8_START = 0;
inline Ints addProducts(Ints sum, Ints a, Ints b) { return vdotq_s32(sum, signedIn(a), signedIn(b)); }
template <int BITS> inline Ints codesOf(Ints codes) {
  if constexpr (BITS < 8) return codes;
  return vreinterpretq_s32_u8(veorq_u8(bytesIn(codes), vdupq_n_u8(128)));
}

/** Words of a token, each in one lane, times the same words of rows. */
template <int BITS, int VECTORS, int... J>
inline void addWords(const Ints (&codes)[VECTORS][8], int first, int8x16_t words, Ints (&sums)[VECTORS], std::integer_sequence<int, J...>) {
#pragma GCC unroll 2
  for (int v = 0; v < VECTORS; v++) { ((sums[v] = vdotq_laneq_s32(sums[v], signedIn(codesOf<BITS>(codes[v][first + J])), words, J)), ...); }
}

template <int BITS, int FROM, int TO, int VECTORS>
inline void dotTile(const Ints (&codes)[VECTORS][8], const uint8_t* x, Ints (&sums)[TILE_TOKENS][VECTORS]) {
#pragma GCC unroll 2
  for (int j = FROM; j < TO; j += 4) {
#pragma GCC unroll 4
    for (int t = 0; t < TILE_TOKENS; t++) {
      addWords<BITS>(codes, j, vreinterpretq_s8_u8(vld1q_u8(x + t * 32 + 4 * j)), sums[t], std::make_integer_sequence<int, 4>());
    }
  }
}
#endif

template <int BITS, int COUNT> inline Ints dotRepeated(const Ints (&codes)[COUNT], const uint8_t* x, Ints sum) {
#pragma GCC unroll 8
  for (int i = 0; i < COUNT; i++) sum = addProducts(sum, codesOf<BITS>(codes[i]), splatPart(x + i * sizeof(Ints)));
  return sum;
}
}  // namespace WINNOW_NAMESPACE
