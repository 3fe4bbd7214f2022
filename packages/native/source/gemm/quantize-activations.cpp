#include "quantize-activations.h"
#include "../runtime/generated/layout.h"

namespace WINNOW_NAMESPACE {
namespace {
constexpr int VECTORS = 32 / LANES;

/** The integers nearest to `value * factor`: adding 1.5 * 2^23 leaves them in the low bits. */
inline Ints nearest(Floats value, Floats factor) {
  const Floats magic = splatF(0x1.8p23f);
  return subI(bitsOf(add(mul(value, factor), magic)), bitsOf(magic));
}

/** The largest magnitude, compared as integers: NaN is larger than anything. */
inline float largestMagnitude(const float* x) {
  Ints top = splatI(0);
  for (int i = 0; i < VECTORS; i++) top = maxI(top, bitAnd(loadI(x + i * LANES), splatI(0x7fffffff)));
  const int32_t bits = reduceMax(top);
  return loadAs<float>(&bits);
}

template <class T> inline void put(uint8_t* at, T value) { memcpy(at, &value, sizeof value); }
}  // namespace

void quantizeBlock(const float* x, const Activations& to, size_t at) {
  const float largest = largestMagnitude(x);
  // values without a finite reciprocal count as zero; NaN makes d NaN, and with it every product
  const float inverse = largest < 1e-36f ? 0 : 127 / largest;
  const float d = largest < 1e-36f ? 0 : largest / 127;
  const Floats factor = splatF(inverse);
  int32_t halves[2] = {0, 0};
  int32_t negatives = 0;
  for (int i = 0; i < VECTORS; i++) {
    const Ints codes = nearest(load(x + i * LANES), factor);
    storeBytes(to.codes + at * 32 + i * LANES, codes);
    if constexpr (CODE_BYTES<8> == 64) negatives += storeSignMagnitude(to.side + at * 64 + i * LANES, codes);
    halves[i * LANES / 16] += reduceAdd(codes);
  }
  const int32_t total = halves[0] + halves[1];
  uint8_t* meta = to.metas + at * META_BYTES;
  put(meta + META_SCALE, d);
  put(meta + META_SUM, d * static_cast<float>(total));
  put(meta + META_MINUS_8, -8 * total);
  put(meta + META_START_Q8, negatives + Q8_START * total);
  put(meta + META_MINUS_32, -32 * halves[0]);
  put(meta + META_MINUS_32 + 4, -32 * halves[1]);
  put(meta + META_ZERO, int32_t{0});
}

void quantizeBlocks(const float* x, const Activations& to, size_t at, size_t numBlocks, size_t stride) {
  for (size_t i = 0; i < numBlocks; i++) quantizeBlock(x + i * 32, to, at + i * stride);
}

void copyBlock(const Activations& other, size_t from, const Activations& to, size_t at) {
  memcpy(to.codes + at * 32, other.codes + from * 32, 32);
  if constexpr (CODE_BYTES<8> == 64) memcpy(to.side + at * 64, other.side + from * 64, 64);
  memcpy(to.metas + at * META_BYTES, other.metas + from * META_BYTES, META_BYTES);
}

void clearBlocks(const Activations& to, size_t at, size_t numBlocks, size_t stride) {
  for (size_t i = 0; i < numBlocks; i++, at += stride) {
    memset(to.codes + at * 32, 0, 32);
    if constexpr (CODE_BYTES<8> == 64) memset(to.side + at * 64, 0, 64);
    memset(to.metas + at * META_BYTES, 0, META_BYTES);
  }
}
}  // namespace WINNOW_NAMESPACE
