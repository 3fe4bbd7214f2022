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

/** Repacked scales are 2^10 times those of the file. */
inline Floats groupScales(const Groups& groups, size_t offset) {
  return mul(loadGroupHalves(groups, offset), splatF(0x1p-10f));
}

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
    const Ints low = splatI(0x0f0f0f0f);
    to->a = groupScales(groups, at);
    for (int j = 0; j < 4; j++) {
      const Ints nibbles = loadGroups(groups, at + 8 + 16 * j);
      to->codes[j] = bitAnd(nibbles, low);
      to->codes[j + 4] = bitAnd(shiftRight<4>(nibbles), low);
    }
  }
};

/** q4_K and q5_K: [4 d][4 dmin][3 vectors of scales][q5_K: 8 vectors of fifth bits][32 vectors of nibbles]. */
template <bool HAS_FIFTH> struct OffsetFormat {
  static constexpr int bits = HAS_FIFTH ? 5 : 4;
  static constexpr int initial = META_ZERO;
  static constexpr Scaling scaling = Scaling::Offset;
  static constexpr int step = 8;
  static constexpr size_t stepBytes = 4 * (HAS_FIFTH ? Q5_K_BLOCK_BYTES : Q4_K_BLOCK_BYTES);
  static constexpr size_t scalesAt = 16;
  static constexpr size_t fifthsAt = 64;
  static constexpr size_t nibblesAt = HAS_FIFTH ? 192 : 64;

  static void unpack(const Groups& groups, size_t at, UnpackedBlock* to) {
    unpackScales(groups, at, to);
    unpackPair<0>(groups, at, to);
    unpackPair<1>(groups, at, to);
    unpackPair<2>(groups, at, to);
    unpackPair<3>(groups, at, to);
  }

 private:
  /** Six-bit scales and mins of eight sub-blocks; a lane has a byte for each of four of them. */
  static void unpackScales(const Groups& groups, size_t at, UnpackedBlock* to) {
    const Ints first = loadGroups(groups, at + scalesAt);
    const Ints second = loadGroups(groups, at + scalesAt + 16);
    const Ints third = loadGroups(groups, at + scalesAt + 32);
    const Ints six = splatI(0x3f3f3f3f);
    const Ints low = splatI(0x0f0f0f0f);
    const Ints top = splatI(0x30303030);
    const Floats d = groupScales(groups, at);
    const Floats dmin = mul(groupScales(groups, at + 8), splatF(-1));
    scaleFour(bitAnd(first, six), d, &UnpackedBlock::a, to);
    scaleFour(bitOr(bitAnd(third, low), bitAnd(shiftRight<2>(first), top)), d, &UnpackedBlock::a, to + 4);
    scaleFour(bitAnd(second, six), dmin, &UnpackedBlock::b, to);
    scaleFour(bitOr(bitAnd(shiftRight<4>(third), low), bitAnd(shiftRight<2>(second), top)), dmin, &UnpackedBlock::b, to + 4);
  }

  static void scaleFour(Ints bytes, Floats factor, Floats UnpackedBlock::*member, UnpackedBlock* to) {
    const Ints byte = splatI(0xff);
    to[0].*member = mul(toFloat(bitAnd(bytes, byte)), factor);
    to[1].*member = mul(toFloat(bitAnd(shiftRight<8>(bytes), byte)), factor);
    to[2].*member = mul(toFloat(bitAnd(shiftRight<16>(bytes), byte)), factor);
    to[3].*member = mul(toFloat(shiftRight<24>(bytes)), factor);
  }

  /** Sub-blocks 2 PAIR and 2 PAIR + 1, the low and the high nibbles of eight vectors. */
  template <int PAIR> static void unpackPair(const Groups& groups, size_t at, UnpackedBlock* to) {
    const Ints low = splatI(0x0f0f0f0f);
    for (int j = 0; j < 8; j++) {
      const Ints nibbles = loadGroups(groups, at + nibblesAt + 128 * PAIR + 16 * j);
      Ints even = bitAnd(nibbles, low);
      Ints odd = bitAnd(shiftRight<4>(nibbles), low);
      if constexpr (HAS_FIFTH) {
        const Ints one = splatI(0x01010101);
        const Ints fifths = loadGroups(groups, at + fifthsAt + 16 * j);
        even = bitOr(even, shiftLeft<4>(bitAnd(shiftRight<2 * PAIR>(fifths), one)));
        odd = bitOr(odd, shiftLeft<4>(bitAnd(shiftRight<2 * PAIR + 1>(fifths), one)));
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
  static constexpr size_t scalesAt = 8;
  static constexpr size_t nibblesAt = 72;
  static constexpr size_t pairsAt = 584;

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
    const Ints low = splatI(0x0f0f0f0f);
    const Ints three = splatI(0x03030303);
    for (int j = 0; j < 8; j++) {
      const Ints first = loadGroups(groups, nibbles + 16 * j);
      const Ints second = loadGroups(groups, nibbles + 128 + 16 * j);
      const Ints twos = loadGroups(groups, pairs + 16 * j);
      to[0].codes[j] = bitOr(bitAnd(first, low), shiftLeft<4>(bitAnd(twos, three)));
      to[1].codes[j] = bitOr(bitAnd(second, low), shiftLeft<4>(bitAnd(shiftRight<2>(twos), three)));
      to[2].codes[j] = bitOr(bitAnd(shiftRight<4>(first), low), shiftLeft<4>(bitAnd(shiftRight<4>(twos), three)));
      to[3].codes[j] = bitOr(bitAnd(shiftRight<4>(second), low), shiftLeft<4>(bitAnd(shiftRight<6>(twos), three)));
    }
  }
};

}  // namespace WINNOW_NAMESPACE
