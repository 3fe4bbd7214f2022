/**
 * Tiles of AMX: eight registers of 16 rows of 64 bytes, and products of bfloat16 with f32 sums. With WINNOW_EMULATED tiles are arrays, and
 * products are those of TDPBF16PS in Intel's manual of instruction set extensions: sums of even and of odd columns, then both.
 */
#pragma once
#include "simd.h"

namespace WINNOW_NAMESPACE {
/** Rows of a tile, and its columns of 32 bits: an f32, or two bfloat16. */
constexpr int TILE_SIZE = 16;

#if defined(WINNOW_EMULATED)
typedef uint32_t TileArray[TILE_SIZE][TILE_SIZE];
inline TileArray& tileAt(int index) {
  static thread_local TileArray tiles[8];
  return tiles[index];
}
inline void openTiles() {}
inline void closeTiles() {}
template <int T> inline void clearTile() { memset(tileAt(T), 0, sizeof(TileArray)); }
template <int T> inline void loadTile(const void* from, size_t stride) {
  for (size_t row = 0; row < TILE_SIZE; row++) memcpy(tileAt(T)[row], static_cast<const uint8_t*>(from) + row * stride, 64);
}
template <int T> inline void storeTile(void* to, size_t stride) {
  for (size_t row = 0; row < TILE_SIZE; row++) memcpy(static_cast<uint8_t*>(to) + row * stride, tileAt(T)[row], 64);
}
template <int C, int A, int B> inline void addTileProducts() {
  const auto upper = [](Ints bits) { return reinterpret_cast<Floats>(bitAnd(bits, splatI(-65536))); };
  for (int row = 0; row < TILE_SIZE; row++) {
    Floats even = splatF(0), odd = splatF(0);
    for (int k = 0; k < TILE_SIZE; k++) {
      const Ints pair = splatI(static_cast<int32_t>(tileAt(A)[row][k])), pairs = loadI(tileAt(B)[k]);
      even = fma(upper(shiftLeft<16>(pair)), upper(shiftLeft<16>(pairs)), even);
      odd = fma(upper(pair), upper(pairs), odd);
    }
    auto* sums = reinterpret_cast<float*>(tileAt(C)[row]);
    store(sums, add(load(sums), add(even, odd)));
  }
}
#else
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
