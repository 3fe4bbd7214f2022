#include "qgemv.h"
#include "../runtime/generated/layout.h"

namespace WINNOW_NAMESPACE {
namespace {
/** Vectors of 32 columns. */
constexpr int VECTORS = 8 / PARTS;
/** Activations of the block `block` of a token. */
struct Block {
  const uint8_t* codes;
  const float* sums;
  const uint8_t* meta;

  template <int BITS> static Block of(const RepeatedToken& token, int block) {
    return {token.codes + static_cast<size_t>(block) * 4 * CODE_BYTES<BITS>, token.sums + 4 * block,
            token.metas + static_cast<size_t>(block) * META_BYTES};
  }
  Floats scale() const { return splatF(floatAt(meta + META_SCALE)); }
};

/** Adds the product of a group's step with each token, times 2^10, to `sums`. */
template <int32_t DTYPE, int TOKENS> struct Step;

/** A block of unpacked codes with one scale per row. */
template <class FORMAT, int TOKENS>
inline void addBlock(const Ints (&codes)[VECTORS], Floats scales, const RepeatedToken* tokens, int block, Floats (&sums)[TOKENS]) {
#pragma GCC unroll 4
  for (int t = 0; t < TOKENS; t++) {
    const Block x = Block::of<FORMAT::bits>(tokens[t], block);
    const Ints products = dotRepeated<FORMAT::bits>(codes, x.codes, firstPart(intAt(x.meta + FORMAT::initial)));
    sums[t] = fma(toFloat(products), mul(scales, x.scale()), sums[t]);
  }
}

template <int TOKENS> struct Step<Q8_0, TOKENS> {
  static void add(const uint8_t* at, const RepeatedToken* tokens, int block, Floats (&sums)[TOKENS]) {
    Ints codes[VECTORS];
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; i++) codes[i] = loadI(at + 8 + i * sizeof(Ints));
    addBlock<Format<Q8_0>, TOKENS>(codes, splatHalves(at), tokens, block, sums);
  }
};

template <int TOKENS> struct Step<Q4_0, TOKENS> {
  static void add(const uint8_t* at, const RepeatedToken* tokens, int block, Floats (&sums)[TOKENS]) {
    Ints codes[VECTORS];
#pragma GCC unroll 2
    for (int i = 0; i < VECTORS / 2; i++) {
      const Ints nibbles = loadI(at + 8 + i * sizeof(Ints));
      codes[i] = lowNibbles(nibbles);
      codes[i + VECTORS / 2] = highNibbles(nibbles);
    }
    addBlock<Format<Q4_0>, TOKENS>(codes, splatHalves(at), tokens, block, sums);
  }
};

/** q4_K and q5_K. */
template <class FORMAT, int TOKENS> struct OffsetStep {
  static void add(const uint8_t* at, const RepeatedToken* tokens, int block, Floats (&sums)[TOKENS]) {
    const uint8_t* scales = at + FORMAT::scalesAt;
    const SixBits six(splatPart(scales), splatPart(scales + 16), splatPart(scales + 32));
    Floats scaled[TOKENS];
    for (Floats& sum : scaled) sum = splatF(0);
    addPair<0>(at, six, tokens, block, scaled);
    addPair<1>(at, six, tokens, block, scaled);
    addPair<2>(at, six, tokens, block, scaled);
    addPair<3>(at, six, tokens, block, scaled);
    const Floats d = splatHalves(at);
    const Floats dmin = mul(splatHalves(at + 8), splatF(-1));
#pragma GCC unroll 4
    for (int t = 0; t < TOKENS; t++) sums[t] = fma(d, scaled[t], fma(dmin, offsetOf(six, tokens[t], block), sums[t]));
  }

 private:
  /** The sum of the mins of all sub-blocks times the sums of activations; each part has those of some sub-blocks. */
  static Floats offsetOf(const SixBits& six, const RepeatedToken& token, int block) {
    Floats offset = splatF(0);
#pragma GCC unroll 8
    for (int i = 0; i < VECTORS; i++) {
      const int sub = i * PARTS;
      const Ints shifts = addI(shiftLeft<3>(partIndices()), splatI(sub % 4 * 8));
      const Ints mins = bitAnd(shiftRightBy(six.mins[sub / 4], shifts), splatI(0xff));
      offset = fma(toFloat(mins), load(token.sums + 4 * (block + sub)), offset);
    }
    return offset;
  }

  /** Sub-blocks 2 PAIR and 2 PAIR + 1. */
  template <int PAIR>
  static void addPair(const uint8_t* at, const SixBits& six, const RepeatedToken* tokens, int block, Floats (&scaled)[TOKENS]) {
    Ints even[VECTORS], odd[VECTORS];
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; i++) {
      const Ints nibbles = loadI(at + FORMAT::nibblesAt + 128 * PAIR + i * sizeof(Ints));
      even[i] = lowNibbles(nibbles);
      odd[i] = highNibbles(nibbles);
      if constexpr (FORMAT::bits == 5) {
        const Ints fifths = loadI(at + FORMAT::fifthsAt + i * sizeof(Ints));
        even[i] = bitOr(even[i], fifthBits<2 * PAIR>(fifths));
        odd[i] = bitOr(odd[i], fifthBits<2 * PAIR + 1>(fifths));
      }
    }
    addBlock<FORMAT, TOKENS>(even, scaleOf<2 * PAIR>(six), tokens, block + 2 * PAIR, scaled);
    addBlock<FORMAT, TOKENS>(odd, scaleOf<2 * PAIR + 1>(six), tokens, block + 2 * PAIR + 1, scaled);
  }

  template <int SUB> static Floats scaleOf(const SixBits& six) {
    return toFloat(moveBits<SUB % 4 * 8, 0>(six.scales[SUB / 4], splatI(0xff)));
  }
};

template <int TOKENS> struct Step<Q4_K, TOKENS> : OffsetStep<Format<Q4_K>, TOKENS> {};
template <int TOKENS> struct Step<Q5_K, TOKENS> : OffsetStep<Format<Q5_K>, TOKENS> {};

template <int TOKENS> struct Step<Q6_K, TOKENS> {
  using FORMAT = Format<Q6_K>;

  static void add(const uint8_t* at, const RepeatedToken* tokens, int block, Floats (&sums)[TOKENS]) {
    Floats scaled[TOKENS];
    for (Floats& sum : scaled) sum = splatF(0);
    for (int half = 0; half < 2; half++) addHalf(at, half, tokens, block + 4 * half, scaled);
    const Floats d = splatHalves(at);
#pragma GCC unroll 4
    for (int t = 0; t < TOKENS; t++) sums[t] = fma(d, scaled[t], sums[t]);
  }

 private:
  /** Vectors of 16 columns, which share a scale. */
  static constexpr int HALF = VECTORS / 2;

  /** Four blocks: two of low nibbles, then two of high ones; the bit pairs of a byte belong to all four. */
  static void addHalf(const uint8_t* at, int half, const RepeatedToken* tokens, int block, Floats (&scaled)[TOKENS]) {
    const uint8_t* nibbles = at + FORMAT::nibblesAt + 256 * half;
    const uint8_t* pairs = at + FORMAT::pairsAt + 128 * half;
    const Ints scales[2] = {splatPart(at + FORMAT::scalesAt + 32 * half), splatPart(at + FORMAT::scalesAt + 32 * half + 16)};
    for (int part = 0; part < 2; part++) {
      Ints codes[4][HALF];
#pragma GCC unroll 2
      for (int i = 0; i < HALF; i++) {
        const size_t offset = (part * HALF + i) * sizeof(Ints);
        const Ints first = loadI(nibbles + offset);
        const Ints second = loadI(nibbles + 128 + offset);
        const Ints twos = loadI(pairs + offset);
        codes[0][i] = bitOr(lowNibbles(first), bitPairs<0>(twos));
        codes[1][i] = bitOr(lowNibbles(second), bitPairs<2>(twos));
        codes[2][i] = bitOr(highNibbles(first), bitPairs<4>(twos));
        codes[3][i] = bitOr(highNibbles(second), bitPairs<6>(twos));
      }
#pragma GCC unroll 4
      for (int b = 0; b < 4; b++) {
        // a lane has the signed bytes of the halves of two blocks
        const Ints bytes = shiftRightSigned<24>(shiftLeftBy(scales[b / 2], splatI(24 - 16 * (b % 2) - 8 * part)));
        addHalfBlock(codes[b], toFloat(bytes), part, tokens, block + b, scaled);
      }
    }
  }

  static void addHalfBlock(const Ints (&codes)[HALF], Floats scales, int part, const RepeatedToken* tokens, int block,
                           Floats (&scaled)[TOKENS]) {
#pragma GCC unroll 4
    for (int t = 0; t < TOKENS; t++) {
      const Block x = Block::of<FORMAT::bits>(tokens[t], block);
      const Ints initial = firstPart(intAt(x.meta + FORMAT::initial + 4 * part));
      const Ints products = dotRepeated<FORMAT::bits>(codes, x.codes + 64 * part, initial);
      scaled[t] = fma(toFloat(products), mul(scales, x.scale()), scaled[t]);
    }
  }
};

template <int32_t DTYPE, int TOKENS>
void multiplyGroup(const uint8_t* group, int numBlocks, const RepeatedToken* tokens, float* to) {
  constexpr int step = Format<DTYPE>::step;
  constexpr size_t stepBytes = Format<DTYPE>::stepBytes;
  Floats sums[TOKENS];
  for (Floats& sum : sums) sum = splatF(0);
  for (int block = 0; block < numBlocks; block += step, group += stepBytes) {
    prefetchStream(group, stepBytes);
    Step<DTYPE, TOKENS>::add(group, tokens, block, sums);
  }
  for (int t = 0; t < TOKENS; t++) storePartSum(to + 4 * t, mul(sums[t], splatF(0x1p-10f)));
}

template <int32_t DTYPE>
void multiplyTokens(const uint8_t* group, int numBlocks, const RepeatedToken* tokens, int numTokens, float* to) {
  switch (numTokens) {
    case 1: return multiplyGroup<DTYPE, 1>(group, numBlocks, tokens, to);
    case 2: return multiplyGroup<DTYPE, 2>(group, numBlocks, tokens, to);
    default: return multiplyGroup<DTYPE, 3>(group, numBlocks, tokens, to);
  }
}

/** Repeats each of `numWords` words of four codes four times. */
void repeatWords(const uint8_t* from, size_t numWords, uint8_t* to) {
  for (size_t i = 0; i < numWords; i++) {
    for (size_t row = 0; row < 4; row++) memcpy(to + 16 * i + 4 * row, from + 4 * i, 4);
  }
}
}  // namespace

RepeatedToken repeatToken(int32_t dtype, const Activations& from, size_t first, size_t numBlocks, uint8_t* scratch) {
  const bool isSide = dtype == Q8_0 && CODE_BYTES<8> == 64;
  const size_t codeBytes = isSide ? 64 : 32;
  const uint8_t* codes = (isSide ? from.side : from.codes) + first * codeBytes;
  auto* sums = reinterpret_cast<float*>(scratch + numBlocks * 4 * CODE_BYTES<8>);
  const uint8_t* metas = from.metas + first * META_BYTES;
  repeatWords(codes, numBlocks * codeBytes / 4, scratch);
  for (size_t i = 0; i < 4 * numBlocks; i++) sums[i] = floatAt(metas + i / 4 * META_BYTES + META_SUM);
  return {scratch, sums, metas};
}

void qgemvGroup(int32_t dtype, const uint8_t* group, int32_t numBlocks, const RepeatedToken* tokens, int32_t numTokens, float* sums) {
  switch (dtype) {
    case Q8_0: return multiplyTokens<Q8_0>(group, numBlocks, tokens, numTokens, sums);
    case Q4_0: return multiplyTokens<Q4_0>(group, numBlocks, tokens, numTokens, sums);
    case Q4_K: return multiplyTokens<Q4_K>(group, numBlocks, tokens, numTokens, sums);
    case Q5_K: return multiplyTokens<Q5_K>(group, numBlocks, tokens, numTokens, sums);
    default: return multiplyTokens<Q6_K>(group, numBlocks, tokens, numTokens, sums);
  }
}
}  // namespace WINNOW_NAMESPACE
