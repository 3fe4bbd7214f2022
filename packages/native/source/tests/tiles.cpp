/** Compares products by tiles of AMX with the plain formulation; exits with the number of failures, or 77 without tiles. */
#include "../gemm/qgemm.h"
#include "../runtime/generated/layout.h"
#include "../runtime/processor.h"
#include "../simd/tiles.h"
#include "plain.h"

namespace WINNOW_NAMESPACE {

namespace {

plain::Random random;
int numFailures = 0;

struct Case {
  int32_t dtype;
  int numRows;
  int numColumns;
  int numTokens;
};

void* allocate(size_t sizeBytes) {
  void* at = aligned_alloc(64, (sizeBytes + 127) & ~size_t{63});
  memset(at, 0xff, sizeBytes);  // NaN in every format
  return at;
}

/**
 * Weights and activations are each rounded to eight bits, by at most 2^-8 of their magnitudes; sums are in f32, whose rounding is less
 * than the square of that.
 */
void check(const Case& c, const plain::Bytes& rows, const std::vector<float>& x, const std::vector<float>& bias, const float* y) {
  const size_t rowBytes = rows.size() / static_cast<size_t>(c.numRows);
  double worst = 0;
  for (int row = 0; row < c.numRows; row++) {
    std::vector<double> values(static_cast<size_t>(c.numColumns));
    for (int i = 0; i < c.numColumns; i++) values[i] = plain::valueAt(c.dtype, &rows[row * rowBytes], i);
    for (int t = 0; t < c.numTokens; t++) {
      double sum = bias[row], bound = fabs(sum) * 0x1p-23;
      for (int i = 0; i < c.numColumns; i++) {
        const double product = values[i] * x[static_cast<size_t>(t) * c.numColumns + i];
        sum += product;
        bound += fabs(product) * (0x1p-7 + 0x1p-15);
      }
      const double error = fabs(sum - y[static_cast<size_t>(t) * c.numRows + row]);
      worst = error <= bound ? worst : fmax(worst, error == error ? error / bound : INFINITY);
    }
  }
  if (worst == 0) return;
  numFailures++;
  printf("tiles dtype %d, %d x %d, %d tokens: error of %g bounds\n", c.dtype, c.numRows, c.numColumns, c.numTokens, worst);
}

void testTiles(const Case& c) {
  const plain::Bytes rows = plain::randomRows(c.dtype, c.numRows, c.numColumns, random);
  const plain::Bytes weight = plain::interleave(c.dtype, rows, c.numRows);
  std::vector<float> x(static_cast<size_t>(c.numTokens * c.numColumns)), bias(static_cast<size_t>(c.numRows));
  for (float& value : x) value = random.value();
  for (float& value : bias) value = random.value();
  const int numBlocks = c.numColumns / 32;
  const int padded = (c.numTokens + 3) & ~3;
  auto* base = static_cast<uint8_t*>(allocate(static_cast<size_t>(padded * numBlocks) * 128 + 64));
  const Activations activations(base, static_cast<size_t>(padded * numBlocks));
  for (int t = 0; t < c.numTokens; t++) {
    roundToken(&x[t * c.numColumns], numBlocks, reinterpret_cast<uint16_t*>(activations.codes) + t * c.numColumns);
  }
  std::vector<float> y(static_cast<size_t>(c.numRows * c.numTokens), NAN);
  const Qgemm product = {weight.data(), 4 * rows.size() / c.numRows, numBlocks, activations, padded, c.numTokens, y.data(), c.numRows,
                         bias.data()};
  auto* scratch = static_cast<QgemmScratch*>(allocate(sizeof(QgemmScratch)));
  auto* panel = static_cast<uint8_t*>(allocate(tilePanelBytes(numBlocks)));
  for (int row = 0; row < c.numRows; row += MC) {
    qgemmTiles(c.dtype, product, row, row + MC < c.numRows ? row + MC : c.numRows, *scratch, panel);
  }
  check(c, rows, x, bias, y.data());
  free(panel);
  free(base);
  free(scratch);
}

void testRounding() {
  const float values[16] = {1, -1, 1.00390625f, 1.01171875f, 0, -0.0f, INFINITY, -INFINITY, NAN, 3.0e38f, 1.5f, 2, 3, 4, 5, 6};
  const uint16_t expected[16] = {0x3f80, 0xbf80, 0x3f80, 0x3f82, 0,      0x8000, 0x7f80, 0xff80,
                                 0x7fc0, 0x7f62, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0};
  uint16_t rounded[16];
  storeBrainFloats(rounded, load(values));
  for (int i = 0; i < 16; i++) {
    if (rounded[i] == expected[i]) continue;
    numFailures++;
    printf("bfloat16 of %g: %04x instead of %04x\n", values[i], rounded[i], expected[i]);
  }
}

}  // namespace

int testTiles() {
  if (!hasTiles()) return 77;
  if (!selfTestTiles()) return 1;
  testRounding();
  for (const int32_t dtype : {Q8_0, Q4_0, Q4_K, Q5_K, Q6_K}) {
    for (const int numTokens : {16, 17, 49, 130}) {
      for (const int numRows : {4, 36}) testTiles({dtype, numRows, 1280, numTokens});
    }
  }
  return numFailures;
}

}  // namespace WINNOW_NAMESPACE

int main() { return WINNOW_NAMESPACE::testTiles(); }
