/**
 * The verbs of simd/tiles.h over arrays, for tests on processors without AMX. Products are those of TDPBF16PS in Intel's manual of
 * instruction set extensions: sums of even and of odd columns, then both.
 */
#pragma once
#include "../simd/simd.h"

namespace WINNOW_NAMESPACE {
constexpr int TILE_SIZE = 16;
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
}  // namespace WINNOW_NAMESPACE
