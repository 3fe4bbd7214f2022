/** Tiles of AMX: eight registers of 16 rows of 64 bytes, and products of bfloat16 with f32 sums. */
#pragma once
#if defined(WINNOW_EMULATED)
#include "../tests/emulated-tiles.h"
#else
#include "simd.h"
#endif

namespace WINNOW_NAMESPACE {
#if !defined(WINNOW_EMULATED)
/** Rows of a tile, and its columns of 32 bits: an f32, or two bfloat16. */
constexpr int TILE_SIZE = 16;
/** Configures eight whole tiles; until `closeTiles` they take part in context switches. */
inline void openTiles() {
  alignas(64) struct {
    uint8_t palette = 1, unused[15] = {};
    uint16_t rowBytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } configuration;
  asm volatile("ldtilecfg %0" : : "m"(configuration));
}
inline void closeTiles() { asm volatile("tilerelease"); }
template <int T> inline void clearTile() { asm volatile("tilezero %%tmm%c0" : : "i"(T)); }
template <int T> inline void loadTile(const void* from, size_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(T), "r"(from), "r"(stride) : "memory");
}
template <int T> inline void storeTile(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(T), "r"(to), "r"(stride) : "memory");
}
/** C += A B, with 32 columns of 16 rows in A, and in row k of B columns 2k and 2k + 1 of 16 rows. */
template <int C, int A, int B> inline void addTileProducts() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}
#endif

/** The nearest bfloat16, in the upper halves of lanes; NaN stays NaN. */
inline Ints roundBrain(Floats value) {
  const Ints bits = bitsOf(value);
  const Ints rounded = addI(bits, addI(splatI(0x7fff), bitAnd(shiftRight<16>(bits), splatI(1))));
  return bitsOf(value == value ? reinterpret_cast<Floats>(rounded) : value + value);
}
inline void storeBrainFloats(uint16_t* to, Floats value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(shiftRight<16>(roundBrain(value))));
}

/** The product of tiles of ones: a test of the instructions. */
inline bool selfTestTiles() {
  float sums[TILE_SIZE][TILE_SIZE];
  uint32_t ones[TILE_SIZE][TILE_SIZE];
  for (auto& row : ones) storeI(row, splatI(0x3f803f80));
  openTiles();
  clearTile<0>();
  loadTile<1>(ones, 64);
  loadTile<2>(ones, 64);
  addTileProducts<0, 1, 2>();
  storeTile<0>(sums, 64);
  closeTiles();
  for (const auto& row : sums) {
    if (reduceAdd(bitsOf(load(row) - 32.0f)) != 0) return false;
  }
  return true;
}

/** Products of tiles, without loads; returns their operations, two each. */
inline double peakTiles(uint64_t passes) {
  openTiles();
  for (uint64_t pass = 0; pass < passes; pass++) {
    addTileProducts<0, 4, 6>();
    addTileProducts<1, 5, 6>();
    addTileProducts<2, 4, 7>();
    addTileProducts<3, 5, 7>();
  }
  closeTiles();
  return 2.0 * 4 * TILE_SIZE * TILE_SIZE * 32 * static_cast<double>(passes);
}
}  // namespace WINNOW_NAMESPACE
