/**
 * Blocks of 32 columns of LANES weight rows in the one form that qgemm multiplies: eight vectors of unsigned codes, a lane per
 * row with four columns each, and one or two vectors of floats, a and b. Codes come from groups of four interleaved rows (see
 * repack.ts of the interpreter). With activation codes x of scale d, the product of a block is
 *   q8_0 q4_0   d a (codes - zero) x
 *   q4_K q5_K   d a codes x + b sum(d x)
 *   q6_K        d (a (codes - 32) x over the first half + b (codes - 32) x over the second)
 */
#pragma once
#include "../generated/dtypes.h"
#include "../simd/simd.h"
#include "quantize-activations.h"

namespace WINNOW_NAMESPACE {
struct UnpackedBlock {
  Ints codes[8];
  Floats a;
  Floats b;
};

/** How a product uses a and b. */
enum class Scaling { One, Offset, Halves };

/** Moves bits FROM and up of every byte to bits TO and up; `mask` selects them there. */
template <int FROM, int TO> inline Ints moveBits(Ints bytes, Ints mask) {
  if constexpr (FROM < TO) return bitAnd(shiftLeft<TO - FROM>(bytes), mask);
  if constexpr (FROM > TO) return bitAnd(shiftRight<FROM - TO>(bytes), mask);
  return bitAnd(bytes, mask);
}
inline Ints lowNibbles(Ints bytes) { return bitAnd(bytes, splatI(0x0f0f0f0f)); }
inline Ints highNibbles(Ints bytes) { return lowNibbles(shiftRight<4>(bytes)); }
/** Bit BIT of every byte as 0 or 16, and bits BIT and BIT + 1 as 0, 16, 32 or 48. */
template <int BIT> inline Ints fifthBits(Ints bytes) { return moveBits<BIT, 4>(bytes, splatI(0x10101010)); }
template <int BIT> inline Ints bitPairs(Ints bytes) { return moveBits<BIT, 4>(bytes, splatI(0x30303030)); }

/** Repacked scales are 2^10 times those of the file. */
inline Floats groupScales(const Groups& groups, size_t offset) { return mul(loadGroupHalves(groups, offset), splatF(0x1p-10f)); }

/**
 * What kernels have to know of a dtype: bits of a code, the offset of the initial integer sum in a meta, which corrects for the
 * zero point of codes, and how STEP blocks of groups of STEP_BYTES are unpacked.
 */
template <int32_t DTYPE> struct Format;

template <> struct Format<Q8_0> {
  static constexpr int bits = 8;
  static constexpr int initial = META_START_Q8;
  static constexpr Scaling scaling = Scaling::One;
  static constexpr int step = 1;
  static constexpr size_t stepBytes = 4 * Q8_0_BLOCK_BYTES;

  static void unpack(const Groups& groups, size_t at, UnpackedBlock* to) {
    to->a = groupScales(groups, at);
    for (int j = 0; j < 8; j++) to->codes[j] = loadGroups(groups, at + 8 + 16 * j);
  }
};

template <> struct Format<Q4_0> {
  static constexpr int bits = 4;
  static constexpr int initial = META_MINUS_8;
  static constexpr Scaling scaling = Scaling::One;
  static constexpr int step = 1;
  static constexpr size_t stepBytes = 4 * Q4_0_BLOCK_BYTES;

  static void unpack(const Groups& groups, size_t at, UnpackedBlock* to) {
    to->a = groupScales(groups, at);
    for (int j = 0; j < 4; j++) {
      const Ints nibbles = loadGroups(groups, at + 8 + 16 * j);
      to->codes[j] = lowNibbles(nibbles);
      to->codes[j + 4] = highNibbles(nibbles);
    }
  }
};

/** Six-bit scales and mins of q4_K and q5_K, from their three vectors: a lane has a byte for each of sub-blocks 0 to 3, then 4 to 7. */
struct SixBits {
  Ints scales[2];
  Ints mins[2];

  SixBits(Ints first, Ints second, Ints third) {
    const Ints six = splatI(0x3f3f3f3f);
    const Ints top = splatI(0x30303030);
    scales[0] = bitAnd(first, six);
    mins[0] = bitAnd(second, six);
    scales[1] = bitOr(lowNibbles(third), moveBits<6, 4>(first, top));
    mins[1] = bitOr(highNibbles(third), moveBits<6, 4>(second, top));
  }
};

/** q4_K and q5_K: [4 d][4 dmin][3 vectors of scales][q5_K: 8 vectors of fifth bits][32 vectors of nibbles]. */
template <bool HAS_FIFTH> struct OffsetFormat {
  static constexpr int bits = HAS_FIFTH ? 5 : 4;
  static constexpr int initial = META_ZERO;
  static constexpr Scaling scaling = Scaling::Offset;
  static constexpr int step = 8;
  static constexpr size_t stepBytes = 4 * (HAS_FIFTH ? Q5_K_BLOCK_BYTES : Q4_K_BLOCK_BYTES);
  static constexpr size_t scalesAt = SCALES_AT_K;
  static constexpr size_t fifthsAt = FIFTHS_AT_Q5_K;
  static constexpr size_t nibblesAt = HAS_FIFTH ? NIBBLES_AT_Q5_K : NIBBLES_AT_Q4_K;

  static void unpack(const Groups& groups, size_t at, UnpackedBlock* to) {
    unpackScales(groups, at, to);
    unpackPair<0>(groups, at, to);
    unpackPair<1>(groups, at, to);
    unpackPair<2>(groups, at, to);
    unpackPair<3>(groups, at, to);
  }

 private:
  static void unpackScales(const Groups& groups, size_t at, UnpackedBlock* to) {
    const SixBits six(loadGroups(groups, at + scalesAt), loadGroups(groups, at + scalesAt + 16), loadGroups(groups, at + scalesAt + 32));
    const Floats d = groupScales(groups, at);
    const Floats dmin = mul(groupScales(groups, at + 8), splatF(-1));
    for (int half = 0; half < 2; half++) {
      scaleFour(six.scales[half], d, &UnpackedBlock::a, to + 4 * half);
      scaleFour(six.mins[half], dmin, &UnpackedBlock::b, to + 4 * half);
    }
  }

  static void scaleFour(Ints bytes, Floats factor, Floats UnpackedBlock::* member, UnpackedBlock* to) {
    for (int i = 0; i < 4; i++) to[i].*member = mul(toFloat(bitAnd(shiftRightBy(bytes, splatI(8 * i)), splatI(0xff))), factor);
  }

  /** Sub-blocks 2 PAIR and 2 PAIR + 1, the low and the high nibbles of eight vectors. */
  template <int PAIR> static void unpackPair(const Groups& groups, size_t at, UnpackedBlock* to) {
    for (int j = 0; j < 8; j++) {
      const Ints nibbles = loadGroups(groups, at + nibblesAt + 128 * PAIR + 16 * j);
      Ints even = lowNibbles(nibbles);
      Ints odd = highNibbles(nibbles);
      if constexpr (HAS_FIFTH) {
        const Ints fifths = loadGroups(groups, at + fifthsAt + 16 * j);
        even = bitOr(even, fifthBits<2 * PAIR>(fifths));
        odd = bitOr(odd, fifthBits<2 * PAIR + 1>(fifths));
      }
      to[2 * PAIR].codes[j] = even;
      to[2 * PAIR + 1].codes[j] = odd;
    }
  }
};

template <> struct Format<Q4_K> : OffsetFormat<false> {};
template <> struct Format<Q5_K> : OffsetFormat<true> {};

/** q6_K: [4 d][4 vectors of scales][32 vectors of nibbles][16 vectors of bit pairs], two scales per block. */
template <> struct Format<Q6_K> {
  static constexpr int bits = 6;
  static constexpr int initial = META_MINUS_32;
  static constexpr Scaling scaling = Scaling::Halves;
  static constexpr int step = 8;
  static constexpr size_t stepBytes = 4 * Q6_K_BLOCK_BYTES;
  static constexpr size_t scalesAt = SCALES_AT_Q6_K;
  static constexpr size_t nibblesAt = NIBBLES_AT_Q6_K;
  static constexpr size_t pairsAt = PAIRS_AT_Q6_K;

  static void unpack(const Groups& groups, size_t at, UnpackedBlock* to) {
    const Floats d = groupScales(groups, at);
    for (int i = 0; i < 4; i++) {
      // a lane has the signed bytes of four half blocks
      const Ints scales = loadGroups(groups, at + scalesAt + 16 * i);
      to[2 * i].a = mul(d, toFloat(shiftRightSigned<24>(shiftLeft<24>(scales))));
      to[2 * i].b = mul(d, toFloat(shiftRightSigned<24>(shiftLeft<16>(scales))));
      to[2 * i + 1].a = mul(d, toFloat(shiftRightSigned<24>(shiftLeft<8>(scales))));
      to[2 * i + 1].b = mul(d, toFloat(shiftRightSigned<24>(scales)));
    }
    unpackHalf(groups, at + nibblesAt, at + pairsAt, to);
    unpackHalf(groups, at + nibblesAt + 256, at + pairsAt + 128, to + 4);
  }

 private:
  /** Four blocks: two of low nibbles, then two of high ones; the bit pairs of a byte belong to all four. */
  static void unpackHalf(const Groups& groups, size_t nibbles, size_t pairs, UnpackedBlock* to) {
    for (int j = 0; j < 8; j++) {
      const Ints first = loadGroups(groups, nibbles + 16 * j);
      const Ints second = loadGroups(groups, nibbles + 128 + 16 * j);
      const Ints twos = loadGroups(groups, pairs + 16 * j);
      to[0].codes[j] = bitOr(lowNibbles(first), bitPairs<0>(twos));
      to[1].codes[j] = bitOr(lowNibbles(second), bitPairs<2>(twos));
      to[2].codes[j] = bitOr(highNibbles(first), bitPairs<4>(twos));
      to[3].codes[j] = bitOr(highNibbles(second), bitPairs<6>(twos));
    }
  }
};
}  // namespace WINNOW_NAMESPACE
