/**
 * The verbs of a level: vectors of LANES f32 or i32 lanes, and 8-bit dot products. A kernel is one source over these verbs,
 * compiled once per level. Headers of levels have their own instructions, and this one what compilers write for each of them.
 */
#pragma once
#if defined(__aarch64__)
#include "neon.h"
#elif defined(__AVX512VNNI__)
#include "avx512.h"
#else
#include "avx2.h"
#endif

namespace WINNOW_NAMESPACE {
/** Parts of 128 bits. */
constexpr int PARTS = LANES / 4;

inline Floats splatF(float value) { return splatTo<LANES>(value); }
inline Floats load(const float* from) { return loadFloats<LANES>(from); }
inline void store(float* to, Floats value) { storeFloats(to, value); }
inline Floats add(Floats a, Floats b) { return a + b; }
inline Floats mul(Floats a, Floats b) { return a * b; }

using IntLanes = IntVector<LANES>;
typedef uint32_t UnsignedLanes __attribute__((vector_size(4 * LANES)));
inline IntLanes lanesOf(Ints a) { return reinterpret_cast<IntLanes>(a); }
inline UnsignedLanes unsignedOf(Ints a) { return reinterpret_cast<UnsignedLanes>(a); }
template <class V> inline Ints intsOf(V a) { return reinterpret_cast<Ints>(a); }

inline Ints splatI(int32_t value) { return intsOf(value - IntLanes{}); }
inline Ints loadI(const void* from) { return loadAs<Ints>(from); }
inline void storeI(void* to, Ints value) { memcpy(to, &value, sizeof value); }
inline Ints addI(Ints a, Ints b) { return intsOf(lanesOf(a) + lanesOf(b)); }
inline Ints subI(Ints a, Ints b) { return intsOf(lanesOf(a) - lanesOf(b)); }
inline Ints bitAnd(Ints a, Ints b) { return a & b; }
inline Ints bitOr(Ints a, Ints b) { return a | b; }
/** Lanes shifted to the right, zeros from the left; bits move between the bytes of a lane. */
template <int BITS> inline Ints shiftRight(Ints a) { return intsOf(unsignedOf(a) >> BITS); }
template <int BITS> inline Ints shiftLeft(Ints a) { return intsOf(unsignedOf(a) << BITS); }
template <int BITS> inline Ints shiftRightSigned(Ints a) { return intsOf(lanesOf(a) >> BITS); }
/** The same with a count for each lane. */
inline Ints shiftRightBy(Ints a, Ints counts) { return intsOf(unsignedOf(a) >> unsignedOf(counts)); }
inline Ints shiftLeftBy(Ints a, Ints counts) { return intsOf(unsignedOf(a) << unsignedOf(counts)); }
inline Ints bitsOf(Floats a) { return intsOf(a); }
inline Floats toFloat(Ints a) { return __builtin_convertvector(lanesOf(a), Floats); }
/** The 4 bytes at `from` in every lane. */
inline Ints splatBytes(const uint8_t* from) { return splatI(loadAs<int32_t>(from)); }

/** Addresses of PARTS groups: each part of a vector comes from one of them. */
struct Groups {
  const uint8_t* at[PARTS];

  /** Four binary16 of a group. */
  int64_t halvesAt(int part, size_t offset) const { return loadAs<int64_t>(at[part] + offset); }
};

/** Stores the sums of rows `[begin, end)` of a token, vector by vector, plus the bias, which may be null. */
template <class F> inline void storeSums(float* y, const float* bias, int begin, int end, F sumOf) {
  for (int v = 0; begin < end; v++, begin += LANES) {
    const int count = end - begin < LANES ? end - begin : LANES;
    storeUpTo(y + begin, bias == nullptr ? sumOf(v) : add(sumOf(v), loadUpTo(bias + begin, count)), count);
  }
}

/**
 * Prefetches what an ascending stream reads two pages later, into the L2 cache: the hardware prefetches within a page and starts again
 * in the next one.
 */
inline void prefetchStream(const uint8_t* at, size_t sizeBytes) {
  for (size_t i = 0; i < sizeBytes; i += 64) __builtin_prefetch(at + 8192 + i, 0, 2);
}
}  // namespace WINNOW_NAMESPACE

#if defined(__aarch64__)
#include "neon-dot.h"
#elif defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#include "usdot.h"
#else
#include "maddubs.h"
#endif
