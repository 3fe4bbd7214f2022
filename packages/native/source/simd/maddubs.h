/**
 * 8-bit dot products by `vpmaddubsw`, whose 16-bit sums saturate. Codes of up to six bits are summed in 16 bits as often as they fit;
 * for codes of eight bits, activations come as magnitudes [32] and signs [32], see `storeSignMagnitude`.
 */
#pragma once

namespace WINNOW_NAMESPACE {
/**
 * Vectors of rows that a qgemm microkernel takes at once: as many as have their codes in half of the registers. Codes of eight bits
 * are operands in memory, where more rows share what is broadcast.
 */
template <int BITS> constexpr int ROW_VECTORS = BITS == 8 ? 4 : 1;
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
/** Nothing else is in the initial sum. */
constexpr int32_t Q8_START = 0;
/**
 * How many 16-bit sums of two products with codes of BITS bits are added in 16 bits: `4 * 2 * 31 * 127 < 2^15`. Eight would fit for four
 * bits, but their chain waits too long in the schedulers of the processor.
 */
template <int BITS> constexpr int PAIR_SUMS = BITS <= 5 ? 4 : BITS == 6 ? 2 : 1;

/** 16-bit sums of two products; `signs` are only read for codes of eight bits. */
template <int BITS> inline Ints pairSums(Ints codes, Ints x, const Ints& signs) {
  if constexpr (BITS < 8) return _mm256_maddubs_epi16(codes, x);
  return _mm256_maddubs_epi16(x, _mm256_xor_si256(codes, signs));
}
template <int BITS> inline Ints splatPairSums(Ints codes, const uint8_t* x) {
  return pairSums<BITS>(codes, splatBytes(x), BITS < 8 ? codes : splatBytes(x + 32));
}
inline Ints addPairs(Ints sum, Ints pairs) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  // otherwise compilers add the pairs as a tree, of which they spill the leaves
  asm("" : "+x"(sum));
  return sum;
}

/** See usdot.h. Signs come 128 bytes after magnitudes. */
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

/** A dot product with sums of 32 bits, as `measurePeak` counts them; codes of few bits need fewer instructions. */
inline Ints addProducts(Ints sum, Ints a, Ints b) { return addPairs(sum, _mm256_maddubs_epi16(a, b)); }

constexpr int TILE_TOKENS = 1;

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
