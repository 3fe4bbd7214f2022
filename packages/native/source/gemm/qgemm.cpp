#include "qgemm.h"
#include "../runtime/generated/layout.h"
#if defined(__AVX512VNNI__)
#include "../simd/tiles.h"
#endif

namespace WINNOW_NAMESPACE {
namespace {
template <class FORMAT, int VECTORS> struct Tile {
  static constexpr int BITS = FORMAT::bits;
  Ints codes[VECTORS][8];
  Floats a[VECTORS];
  Floats b[VECTORS];

  explicit Tile(const UnpackedBlock* blocks) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
#pragma GCC unroll 8
      for (int j = 0; j < 8; j++) codes[v][j] = blocks[v * KC_BLOCKS].codes[j];
      a[v] = blocks[v * KC_BLOCKS].a;
      b[v] = blocks[v * KC_BLOCKS].b;
    }
  }

  /** Integer sums of words [FROM, TO), from the initial sums at `initial` in the metas. */
  template <int FROM, int TO>
  void dot(const uint8_t* x, const uint8_t* meta, int initial, Ints (&products)[TILE_TOKENS][VECTORS]) const {
#pragma GCC unroll 4
    for (int t = 0; t < TILE_TOKENS; t++) {
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; v++) products[t][v] = splatI(intAt(meta + t * META_BYTES + initial));
    }
    dotTile<BITS, FROM, TO, VECTORS>(codes, x, products);
  }

  /** Adds the scaled products with TILE_TOKENS tokens to `sums[VECTORS][SUMS_STRIDE][LANES]`. */
  void multiply(const uint8_t* x, const uint8_t* meta, float* sums) const {
    Ints first[TILE_TOKENS][VECTORS];
    [[maybe_unused]] Ints last[TILE_TOKENS][VECTORS];
    if constexpr (FORMAT::scaling == Scaling::Halves) {
      dot<0, 4>(x, meta, FORMAT::initial, first);
      dot<4, 8>(x, meta, FORMAT::initial + 4, last);
    } else {
      dot<0, 8>(x, meta, FORMAT::initial, first);
    }
#pragma GCC unroll 4
    for (int t = 0; t < TILE_TOKENS; t++, meta += META_BYTES) {
      const Floats d = splatF(floatAt(meta + META_SCALE));
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; v++) {
        float* to = sums + (v * SUMS_STRIDE + t) * LANES;
        Floats sum = load(to);
        if constexpr (FORMAT::scaling == Scaling::Offset) sum = fma(b[v], splatF(floatAt(meta + META_SUM)), sum);
        if constexpr (FORMAT::scaling == Scaling::Halves) {
          sum = fma(fma(toFloat(first[t][v]), a[v], mul(toFloat(last[t][v]), b[v])), d, sum);
        } else {
          sum = fma(toFloat(first[t][v]), mul(a[v], d), sum);
        }
        store(to, sum);
      }
    }
  }
};

/** VECTORS blocks of the same columns times tokens, added to `sums[VECTORS][SUMS_STRIDE][LANES]`. */
template <class FORMAT, int VECTORS>
void multiplyBlocks(const UnpackedBlock* blocks, const uint8_t* x, const uint8_t* meta, int numTokens, float* sums) {
  const Tile<FORMAT, VECTORS> tile(blocks);
  for (int t = 0; t < numTokens; t += TILE_TOKENS) {
    tile.multiply(x, meta, sums);
    x += TILE_TOKENS * CODE_BYTES<FORMAT::bits>;
    meta += TILE_TOKENS * META_BYTES;
    sums += TILE_TOKENS * LANES;
  }
}

/** Unpacks blocks `[block, block + numBlocks)` of a panel. */
template <class FORMAT>
void unpackPanel(const Qgemm& product, int begin, int end, int block, int numBlocks, QgemmScratch& scratch) {
  for (int v = 0; v < PANEL_VECTORS && begin + v * LANES < end; v++) {
    Groups groups;
    for (int g = 0; g < LANES / 4; g++) {
      // the last group stands in for those beyond it
      const int row = begin + v * LANES + 4 * g;
      groups.at[g] = product.weight + static_cast<size_t>((row < end ? row : end - 4) / 4) * product.groupBytes;
    }
    for (int i = 0; i < numBlocks; i += FORMAT::step) {
      FORMAT::unpack(groups, (block + i) / FORMAT::step * FORMAT::stepBytes, &scratch.panel[v][i]);
    }
  }
}

/** Stores the sums of tokens `[first, last)` plus the bias. */
void storePanel(const Qgemm& product, int begin, int end, int first, int last, const QgemmScratch& scratch) {
  for (int t = first; t < last; t++) {
    float* y = product.y + static_cast<size_t>(product.rows == nullptr ? t : product.rows[t]) * product.numOutputs;
    storeSums(y, product.bias, begin, end, [&](int v) { return load(scratch.sums[v][t - first]); });
  }
}

template <class FORMAT>
void multiplyPanel(const Qgemm& product, int begin, int end, QgemmScratch& scratch) {
  const int numVectors = (end - begin + LANES - 1) / LANES;
  // codes, metas and sums of a pass share the L1 cache
  constexpr int PASS = CODE_BYTES<FORMAT::bits> == 32 ? NC : NC / 2;
  for (int first = 0; first < product.numTokens; first += PASS) {
    const int last = first + PASS < product.numTokens ? first + PASS : product.numTokens;
    for (int v = 0; v < numVectors; v++) memset(scratch.sums[v], 0, static_cast<size_t>(last - first) * sizeof *scratch.sums[v]);
    for (int block = 0; block < product.numBlocks; block += KC_BLOCKS) {
      const int count = product.numBlocks - block < KC_BLOCKS ? product.numBlocks - block : KC_BLOCKS;
      unpackPanel<FORMAT>(product, begin, end, block, count, scratch);
      for (int i = 0; i < count; i++) {
        const size_t column = static_cast<size_t>(block + i) * product.paddedTokens + first;
        const uint8_t* x = product.activations.codesFor<FORMAT::bits>() + column * CODE_BYTES<FORMAT::bits>;
        const uint8_t* meta = product.activations.metas + column * META_BYTES;
        constexpr int STEP = ROW_VECTORS<FORMAT::bits>;
        int v = 0;
        for (; v + STEP <= numVectors; v += STEP) {
          multiplyBlocks<FORMAT, STEP>(&scratch.panel[v][i], x, meta, last - first, scratch.sums[v][0]);
        }
        for (; v < numVectors; v++) { multiplyBlocks<FORMAT, 1>(&scratch.panel[v][i], x, meta, last - first, scratch.sums[v][0]); }
      }
    }
    storePanel(product, begin, end, first, last, scratch);
  }
}

/** Calls `use` with the format of a dtype. */
template <class F> void withFormat(int32_t dtype, F use) {
  switch (dtype) {
    case Q8_0: return use(Format<Q8_0>());
    case Q4_0: return use(Format<Q4_0>());
    case Q4_K: return use(Format<Q4_K>());
    case Q5_K: return use(Format<Q5_K>());
    default: return use(Format<Q6_K>());
  }
}

#if defined(__AVX512VNNI__)
/** A block of 32 columns of LANES rows as a tile. */
typedef uint32_t BlockTile[TILE_SIZE][TILE_SIZE];

template <class FORMAT> void roundBlock(const UnpackedBlock& block, BlockTile& to) {
  for (int k = 0; k < TILE_SIZE; k++) {
    const Floats scale = FORMAT::scaling == Scaling::Halves && k >= TILE_SIZE / 2 ? block.b : block.a;
    const Floats offset = FORMAT::scaling == Scaling::Offset ? block.b : mul(scale, splatF(-(1 << (FORMAT::bits - 1))));
    const Ints codes = shiftRightBy(block.codes[k / 2], splatI(k % 2 * 16));
    const auto valueOf = [&](Ints code) { return roundBrain(fma(toFloat(bitAnd(code, splatI(255))), scale, offset)); };
    storeI(to[k], bitOr(shiftRight<16>(valueOf(codes)), bitAnd(valueOf(shiftRight<8>(codes)), splatI(-65536))));
  }
}

/** Two tiles of tokens, `stride` numbers apart, times two of rows; the sums of rows are SUMS_STRIDE tokens apart. */
void multiplySquare(const uint16_t* x, const uint16_t* next, size_t stride, const BlockTile* rows, const BlockTile* others, int numBlocks,
                    float (*sums)[LANES]) {
  clearTile<0>();
  clearTile<1>();
  clearTile<2>();
  clearTile<3>();
  for (int block = 0; block < numBlocks; block++) {
    loadTile<4>(x + block * 32, stride * 2);
    loadTile<5>(next + block * 32, stride * 2);
    loadTile<6>(rows[block], 64);
    loadTile<7>(others[block], 64);
    addTileProducts<0, 4, 6>();
    addTileProducts<1, 5, 6>();
    addTileProducts<2, 4, 7>();
    addTileProducts<3, 5, 7>();
  }
  storeTile<0>(sums[0], 64);
  storeTile<1>(sums[TILE_SIZE], 64);
  storeTile<2>(sums[SUMS_STRIDE], 64);
  storeTile<3>(sums[SUMS_STRIDE + TILE_SIZE], 64);
}

template <class FORMAT> void multiplyTiles(const Qgemm& product, int begin, int end, QgemmScratch& scratch, BlockTile* panel) {
  const int numVectors = (end - begin + LANES - 1) / LANES;
  for (int block = 0; block < product.numBlocks; block += KC_BLOCKS) {
    const int count = product.numBlocks - block < KC_BLOCKS ? product.numBlocks - block : KC_BLOCKS;
    unpackPanel<FORMAT>(product, begin, end, block, count, scratch);
    for (int v = 0; v < numVectors; v++) {
      for (int i = 0; i < count; i++) roundBlock<FORMAT>(scratch.panel[v][i], panel[v * product.numBlocks + block + i]);
    }
  }
  const size_t stride = static_cast<size_t>(product.numBlocks) * 32;
  const auto* tokens = reinterpret_cast<const uint16_t*>(product.activations.codes);
  for (int first = 0; first < product.numTokens; first += NC) {
    const int last = first + NC < product.numTokens ? first + NC : product.numTokens;
    openTiles();
    for (int t = first; t < last; t += 2 * TILE_SIZE) {
      const uint16_t* x = tokens + static_cast<size_t>(t) * stride;
      const uint16_t* next = t + TILE_SIZE < last ? x + TILE_SIZE * stride : x;
      multiplySquare(x, next, stride, panel, numVectors > 1 ? panel + product.numBlocks : panel, product.numBlocks,
                     scratch.sums[0] + (t - first));
    }
    closeTiles();
    storePanel(product, begin, end, first, last, scratch);
  }
}
#endif
}  // namespace

#if defined(__AVX512VNNI__)
void roundToken(const float* x, int32_t numBlocks, uint16_t* to) {
  for (int i = 0; i < numBlocks * 32; i += LANES) storeBrainFloats(to + i, load(x + i));
}

void qgemmTiles(int32_t dtype, const Qgemm& product, int32_t begin, int32_t end, QgemmScratch& scratch, uint8_t* panel) {
  withFormat(dtype,
             [&](auto format) { multiplyTiles<decltype(format)>(product, begin, end, scratch, reinterpret_cast<BlockTile*>(panel)); });
}
#endif

void qgemmPanel(int32_t dtype, const Qgemm& product, int32_t begin, int32_t end, QgemmScratch& scratch) {
  withFormat(dtype, [&](auto format) { multiplyPanel<decltype(format)>(product, begin, end, scratch); });
}
}  // namespace WINNOW_NAMESPACE
