/** Verbs of the levels neon and i8mm: 4 lanes, so that a vector is one part. 8-bit dot products are in neon-dot.h. */
#pragma once
#include <arm_neon.h>
#include "vectors.h"

namespace WINNOW_NAMESPACE {
constexpr int LANES = 4;
using Floats = FloatVector<LANES>;
using Ints = IntVector<LANES>;
constexpr int NUM_REGISTERS = 32;
constexpr int FLOAT_TILE_TOKENS = 12;

inline Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
inline FloatVector<8> fma(FloatVector<8> a, FloatVector<8> b, FloatVector<8> c) {
  for (int i = 0; i < 8; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
inline Floats larger(Floats a, Floats b) { return b > a ? b : a; }
inline Floats loadUpTo(const float* from, int count) {
  Floats value = {};
  memcpy(&value, from, static_cast<size_t>(count) * sizeof(float));
  return value;
}
inline void storeUpTo(float* to, Floats value, int count) { memcpy(to, &value, static_cast<size_t>(count) * sizeof(float)); }

inline Ints maxI(Ints a, Ints b) { return vmaxq_s32(a, b); }
inline int32_t reduceAdd(Ints a) { return vaddvq_s32(a); }
inline int32_t reduceMax(Ints a) { return vmaxvq_s32(a); }
inline void storeBytes(uint8_t* to, Ints a) {
  const int16x4_t words = vqmovn_s32(a);
  vst1_lane_s32(reinterpret_cast<int32_t*>(to), vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(words, words))), 0);
}
inline void storeColumns(const float* a, const float* b, const float* c, const float* d, float* to, size_t stride) {
  const float* rows[4] = {a, b, c, d};
  for (size_t i = 0; i < 4; i++) {
    for (size_t row = 0; row < 4; row++) to[i * stride + row] = rows[row][i];
  }
}

inline Ints splatPart(const uint8_t* from) { return vreinterpretq_s32_u8(vld1q_u8(from)); }
inline FloatVector<LANES> loadHalves(const uint8_t* from) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from))); }
inline Floats splatHalves(const uint8_t* from) { return loadHalves(from); }
inline Ints firstPart(int32_t value) { return vdupq_n_s32(value); }
inline Ints firstPart(const void* from) { return splatPart(static_cast<const uint8_t*>(from)); }
inline Floats splatPartF(const void* from) { return loadFloats<LANES>(static_cast<const float*>(from)); }
inline Ints partIndices() { return Ints{}; }
inline void storePartSum(float* to, Floats a) { storeFloats(to, a); }
template <class GROUPS> inline Ints loadGroups(const GROUPS& groups, size_t offset) { return splatPart(groups.at[0] + offset); }
template <class GROUPS> inline Floats loadGroupHalves(const GROUPS& groups, size_t offset) { return loadHalves(groups.at[0] + offset); }

/** Four bytes, and the numbers that they are as signed integers. */
inline uint8x8_t loadFour(const uint8_t* from) { return vreinterpret_u8_u32(vdup_n_u32(loadAs<uint32_t>(from))); }
inline Floats widenBytes(uint8x8_t bytes) { return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes))))); }
inline FloatVector<LANES> loadBytes(const uint8_t* from) { return widenBytes(loadFour(from)); }
inline FloatVector<LANES> loadFlipped(const uint8_t* from) { return widenBytes(veor_u8(loadFour(from), vdup_n_u8(128))); }
inline FloatVector<LANES> loadNibbles(const uint8_t* from, bool isHigh) {
  const uint8x8_t bytes = loadFour(from);
  return widenBytes(vsub_u8(isHigh ? vshr_n_u8(bytes, 4) : vand_u8(bytes, vdup_n_u8(15)), vdup_n_u8(8)));
}
inline FloatVector<LANES> loadBrainFloats(const uint8_t* from) {
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(from)), 16));
}
inline float halfToFloat(const uint8_t* from) {
  __fp16 half; // no return type of a function
  memcpy(&half, from, 2);
  return half;
}
inline void storeFourHalves(float* to, const uint8_t* from, float factor) { storeFloats(to, loadHalves(from) * factor); }

class NibbleTable {
 public:
  explicit NibbleTable(const int8_t* values) : bytes_(vld1q_s8(values)) {}

  void load(const uint8_t* from, FloatVector<LANES> (&to)[8]) const {
    const uint8x16_t bytes = vld1q_u8(from);
    widenAll(vqtbl1q_s8(bytes_, vandq_u8(bytes, vdupq_n_u8(15))), to);
    widenAll(vqtbl1q_s8(bytes_, vshrq_n_u8(bytes, 4)), to + 4);
  }

 private:
  static void widenAll(int8x16_t bytes, FloatVector<LANES>* to) {
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    to[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    to[1] = vcvtq_f32_s32(vmovl_high_s16(low));
    to[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    to[3] = vcvtq_f32_s32(vmovl_high_s16(high));
  }

  int8x16_t bytes_;
};
}  // namespace WINNOW_NAMESPACE
