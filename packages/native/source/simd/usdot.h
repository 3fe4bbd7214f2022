/** 8-bit dot products by the one instruction of `addProducts`. */
#pragma once

namespace WINNOW_NAMESPACE {
/** Vectors of rows that a qgemm microkernel takes at once: their codes fill half of 32 registers; of 16, they stay in the L1 cache. */
template <int BITS> constexpr int ROW_VECTORS = 2;
/** Bytes of the codes of a block of 32 activations in the form for weights of BITS bits. */
template <int BITS> constexpr int CODE_BYTES = 32;
/** The initial sum for unsigned codes of q8_0 is this times the sum of the codes of activations. */
constexpr int32_t Q8_START = -128;
/** Only defined on levels with a second form of codes. */
int32_t storeSignMagnitude(uint8_t* to, Ints codes);

/**
 * Adds the products of COUNT vectors of codes, unsigned with BITS bits, and as many of activations, in which every four are
 * repeated for the four rows of a part.
 */
template <int BITS, int COUNT> inline Ints dotRepeated(const Ints (&codes)[COUNT], const uint8_t* x, Ints sum) {
#pragma GCC unroll 4
  for (int i = 0; i < COUNT; i++) sum = addProducts(sum, codes[i], loadI(x + i * sizeof(Ints)));
  return sum;
}

/** Tokens that a qgemm microkernel interleaves, to hide the latency of dot products and to load codes once for all of them. */
constexpr int TILE_TOKENS = LANES == 16 ? 2 : 4;

/**
 * Adds the products of words [FROM, TO) of blocks: a lane's four codes, unsigned with BITS bits, times four activations of each
 * token; `x` are the codes of consecutive tokens.
 */
template <int BITS, int FROM, int TO, int VECTORS>
inline void dotTile(const Ints (&codes)[VECTORS][8], const uint8_t* x, Ints (&sums)[TILE_TOKENS][VECTORS]) {
#pragma GCC unroll 8
  for (int j = FROM; j < TO; j++) {
#pragma GCC unroll 4
    for (int t = 0; t < TILE_TOKENS; t++) {
      const Ints four = splatBytes(x + t * CODE_BYTES<BITS> + 4 * j);
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; v++) sums[t][v] = addProducts(sums[t][v], codes[v][j], four);
    }
  }
}
}  // namespace WINNOW_NAMESPACE
