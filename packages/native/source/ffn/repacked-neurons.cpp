#include "repacked-neurons.h"
#include "../gemm/int8-matmul.h"
#include "../runtime/generated/layout.h"

namespace WINNOW_NAMESPACE {
namespace {
/** Vectors of 32 columns of four blocks. */
constexpr int VECTORS = 8 / PARTS;

template <int32_t DTYPE> constexpr size_t FOUR_WEIGHTS = 4 * (DTYPE == Q8_0 ? Q8_0_BLOCK_BYTES : Q4_0_BLOCK_BYTES);

template <int32_t DTYPE> inline void unpackFour(const uint8_t* at, Ints (&codes)[VECTORS]) {
  if constexpr (DTYPE == Q8_0) {
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; i++) codes[i] = loadI(at + i * sizeof(Ints));
  } else {
#pragma GCC unroll 2
    for (int i = 0; i < VECTORS / 2; i++) {
      const Ints nibbles = loadI(at + i * sizeof(Ints));
      codes[i] = lowNibbles(nibbles);
      codes[i + VECTORS / 2] = highNibbles(nibbles);
    }
  }
}

template <int32_t DTYPE> void dotRows(const ScatteredRows& rows, size_t at, const uint8_t* x, int numFours, float* to) {
  Floats sums[ROWS_AT_ONCE];
  for (Floats& sum : sums) sum = splatF(0);
  for (int four = 0; four < numFours; four++, at += FOUR_WEIGHTS<DTYPE>, x += FOUR_BYTES) {
    prefetchAhead(rows, at, at + FOUR_WEIGHTS<DTYPE>);
    const Floats scales = splatPartF(x + FOUR_SCALES);
// unrolled, there would be more addresses than registers
#pragma GCC unroll 1
    for (int r = 0; r < ROWS_AT_ONCE; r++) {
      Ints codes[VECTORS];
      unpackFour<DTYPE>(rows.at[r] + at + 8, codes);
      const Ints products = dotRepeated<Format<DTYPE>::bits>(codes, x, firstPart(x + FOUR_STARTS));
      sums[r] = fma(toFloat(products), mul(splatHalves(rows.at[r] + at), scales), sums[r]);
    }
  }
  for (int r = 0; r < ROWS_AT_ONCE; r++) {
    float parts[4];
    storePartSum(parts, sums[r]);
    to[r] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }
}

/** The codes of a block of a down row as floats. */
template <int32_t DTYPE> inline void unpackBlock(const NibbleTable& table, const uint8_t* codes, FloatVector<LANES> (&to)[32 / LANES]) {
  if constexpr (DTYPE == Q4_0) return table.load(codes, to);
#pragma GCC unroll 4
  for (int v = 0; v < 32 / LANES; v++) to[v] = loadFlipped(codes + v * LANES);
}

template <int32_t DTYPE>
void addRows(const ScatteredRows& rows, size_t at, const float* factors, int numFours, float* sums) {
  constexpr size_t codeBytes = FOUR_WEIGHTS<DTYPE> / 4 - 2;
  const NibbleTable table(q4Values);
  for (int four = 0; four < numFours; four++, at += FOUR_WEIGHTS<DTYPE>) {
    prefetchAhead(rows, at, at + FOUR_WEIGHTS<DTYPE>);
    float scales[ROWS_AT_ONCE][4];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS_AT_ONCE; r++) storeFourHalves(scales[r], rows.at[r] + at, factors[r]);
    for (int block = 0; block < 4; block++, sums += 32) {
      FloatVector<LANES> tile[32 / LANES];
#pragma GCC unroll 4
      for (int v = 0; v < 32 / LANES; v++) tile[v] = load(sums + v * LANES);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS_AT_ONCE; r++) {
        FloatVector<LANES> codes[32 / LANES];
        unpackBlock<DTYPE>(table, rows.at[r] + at + 8 + static_cast<size_t>(block) * codeBytes, codes);
        const Floats scale = splatF(scales[r][block]);
#pragma GCC unroll 4
        for (int v = 0; v < 32 / LANES; v++) tile[v] = fma(codes[v], scale, tile[v]);
      }
#pragma GCC unroll 4
      for (int v = 0; v < 32 / LANES; v++) store(sums + v * LANES, tile[v]);
    }
  }
}
}  // namespace

void quantizeFours(int32_t dtype, const float* x, int32_t numFours, uint8_t* to) {
  alignas(64) uint8_t scratch[activationBytes(4)];
  const Activations four(scratch, 4);
  const bool isSide = dtype == Q8_0 && CODE_BYTES<8> == 64;
  const size_t codeBytes = isSide ? 64 : 32;
  const uint8_t* codes = isSide ? four.side : four.codes;
  const int start = dtype == Q8_0 ? META_START_Q8 : META_MINUS_8;
  for (int i = 0; i < numFours; i++, x += 128, to += FOUR_BYTES) {
    quantizeBlocks(x, four, 0, 4, 1);
    for (size_t block = 0; block < 4; block++) {
      for (size_t at = 0; at < codeBytes; at += 4) memcpy(to + 4 * at + 4 * block, codes + block * codeBytes + at, 4);
      memcpy(to + FOUR_SCALES + 4 * block, four.metas + block * META_BYTES + META_SCALE, 4);
      memcpy(to + FOUR_STARTS + 4 * block, four.metas + block * META_BYTES + start, 4);
    }
  }
}

void dotRepacked(int32_t dtype, const ScatteredRows& rows, size_t offset, const uint8_t* x, int32_t numFours, float* dots) {
  if (dtype == Q8_0) dotRows<Q8_0>(rows, offset, x, numFours, dots);
  else dotRows<Q4_0>(rows, offset, x, numFours, dots);
}

void addRepacked(int32_t dtype, const ScatteredRows& rows, size_t offset, const float* factors, int32_t numFours, float* sums) {
  if (dtype == Q8_0) addRows<Q8_0>(rows, offset, factors, numFours, sums);
  else addRows<Q4_0>(rows, offset, factors, numFours, sums);
}
}  // namespace WINNOW_NAMESPACE
