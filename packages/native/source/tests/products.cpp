/** Compares the products of a level with the plain formulation; exits with the number of failures, or 77 without the instructions. */
#include "../gemm/float-gemm.h"
#include "../gemm/qgemm.h"
#include "../gemm/qgemv.h"
#include "../runtime/generated/layout.h"
#include "../runtime/processor.h"
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

/** Weights and activations of a case, the latter as f32 and as the numbers that their codes stand for. */
struct Operands {
  plain::Bytes rows;
  plain::Bytes weight;
  std::vector<float> x;
  std::vector<double> codes;
  std::vector<float> bias;

  /** Weights of a float type, which `fill` provides; activations stay as they are. */
  template <class FILL> Operands(const Case& c, FILL fill)
      : x(static_cast<size_t>(c.numTokens * c.numColumns)), bias(static_cast<size_t>(c.numRows)) {
    fill(rows);
    for (float& value : x) value = random.value();
    for (float& value : bias) value = random.value();
    codes.assign(x.begin(), x.end());
  }

  explicit Operands(const Case& c)
      : rows(plain::randomRows(c.dtype, c.numRows, c.numColumns, random)),
        weight(plain::interleave(c.dtype, rows, c.numRows)),
        x(static_cast<size_t>(c.numTokens * c.numColumns)),
        bias(static_cast<size_t>(c.numRows)) {
    for (float& value : x) value = random.value();
    for (float& value : bias) value = random.value();
    codes = plain::quantized(x);
  }
};

/** Checks outputs against sums in f64; the bound is that of additions in f32, relative to the sum of magnitudes. */
void check(const char* name, const Case& c, const Operands& operands, const std::vector<float>& y) {
  const size_t rowBytes = operands.rows.size() / static_cast<size_t>(c.numRows);
  double worst = 0;
  for (int row = 0; row < c.numRows; row++) {
    std::vector<double> values(static_cast<size_t>(c.numColumns));
    for (int i = 0; i < c.numColumns; i++) values[i] = plain::valueAt(c.dtype, &operands.rows[row * rowBytes], i);
    for (int t = 0; t < c.numTokens; t++) {
      double sum = operands.bias[row];
      double magnitude = fabs(sum);
      for (int i = 0; i < c.numColumns; i++) {
        const double product = values[i] * operands.codes[static_cast<size_t>(t) * c.numColumns + i];
        sum += product;
        magnitude += fabs(product);
      }
      worst = fmax(worst, fabs(sum - y[static_cast<size_t>(t) * c.numRows + row]) / magnitude);
    }
  }
  if (worst < 1e-6) return;
  numFailures++;
  printf("%s dtype %d, %d x %d, %d tokens: error %g of the sum of magnitudes\n", name, c.dtype, c.numRows, c.numColumns, c.numTokens,
         worst);
}

void* allocate(size_t sizeBytes) {
  void* at = aligned_alloc(64, (sizeBytes + 127) & ~size_t{63});
  memset(at, 0xa5, sizeBytes);
  return at;
}

void testQgemm(const Case& c) {
  const Operands operands(c);
  const int numBlocks = c.numColumns / 32;
  const int padded = (c.numTokens + 3) & ~3;
  auto* base = static_cast<uint8_t*>(allocate(static_cast<size_t>(padded * numBlocks) * 128 + 64));
  const Activations activations(base, static_cast<size_t>(padded * numBlocks));
  for (int t = 0; t < c.numTokens; t++) quantizeBlocks(&operands.x[t * c.numColumns], activations, t, numBlocks, padded);
  std::vector<float> y(static_cast<size_t>(c.numRows * c.numTokens), NAN);
  const Qgemm product = {
      operands.weight.data(), 4 * operands.rows.size() / c.numRows, numBlocks, activations, padded, c.numTokens, y.data(), c.numRows,
      operands.bias.data()};
  auto* scratch = static_cast<QgemmScratch*>(allocate(sizeof(QgemmScratch)));
  for (int row = 0; row < c.numRows; row += MC) qgemmPanel(c.dtype, product, row, row + MC < c.numRows ? row + MC : c.numRows, *scratch);
  check("qgemm", c, operands, y);
  free(base);
  free(scratch);
}

void testQgemv(const Case& c) {
  const Operands operands(c);
  const size_t numBlocks = static_cast<size_t>(c.numColumns / 32);
  auto* base = static_cast<uint8_t*>(allocate(c.numTokens * numBlocks * 128 + 64));
  const Activations activations(base, c.numTokens * numBlocks);
  quantizeBlocks(operands.x.data(), activations, 0, c.numTokens * numBlocks, 1);
  RepeatedToken tokens[MAX_GEMV_TOKENS];
  std::vector<void*> repeated;
  for (int t = 0; t < c.numTokens; t++) {
    repeated.push_back(allocate(repeatedBytes(numBlocks)));
    tokens[t] = repeatToken(c.dtype, activations, t * numBlocks, numBlocks, static_cast<uint8_t*>(repeated.back()));
  }
  std::vector<float> y(static_cast<size_t>(c.numRows * c.numTokens), NAN);
  const size_t groupBytes = 4 * operands.rows.size() / c.numRows;
  for (int row = 0; row < c.numRows; row += 4) {
    float sums[4 * MAX_GEMV_TOKENS];
    qgemvGroup(c.dtype, &operands.weight[row / 4 * groupBytes], static_cast<int32_t>(numBlocks), tokens, c.numTokens, sums);
    for (int t = 0; t < c.numTokens; t++) {
      for (int i = 0; i < 4; i++) y[t * c.numRows + row + i] = sums[4 * t + i] + operands.bias[row + i];
    }
  }
  check("qgemv", c, operands, y);
  free(base);
  for (void* at : repeated) free(at);
}

/** The bits of a weight of a float type near `value`. */
void putFloat(int32_t dtype, float value, plain::Bytes& rows) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (dtype == F16) bits = plain::halfOf(value);
  if (dtype == BF16) bits >>= 16;
  for (size_t i = 0; i < winnow::bytesOf(dtype, 1); i++) rows.push_back(static_cast<uint8_t>(bits >> 8 * i));
}

void testFloats(const Case& c) {
  Operands operands(c, [&](plain::Bytes& rows) {
    for (int i = 0; i < c.numRows * c.numColumns; i++) putFloat(c.dtype, random.value(), rows);
  });
  std::vector<float> y(static_cast<size_t>(c.numRows * c.numTokens), NAN);
  const size_t rowBytes = operands.rows.size() / static_cast<size_t>(c.numRows);
  std::vector<float> packed(packedFloats(c.numTokens, c.numColumns));
  for (int tile = 0; tile * FLOAT_TILE_TOKENS < c.numTokens; tile++) {
    packTile(operands.x.data(), c.numTokens, c.numColumns, tile, packed.data());
  }
  const FloatGemm product = {c.dtype,   operands.rows.data(), rowBytes, c.numColumns, packed.data(), c.numTokens, y.data(),
                             c.numRows, operands.bias.data()};
  auto* scratch = static_cast<FloatGemmScratch*>(allocate(sizeof(FloatGemmScratch)));
  for (int row = 0; row < c.numRows; row += FLOAT_MC) {
    floatGemmPanel(product, row, row + FLOAT_MC < c.numRows ? row + FLOAT_MC : c.numRows, *scratch);
  }
  free(scratch);
  check("float gemm", c, operands, y);
  if (c.numTokens > 3) return;
  for (int row = 0; row < c.numRows; row++) {
    float sums[3];
    floatGemv(c.dtype, &operands.rows[row * rowBytes], operands.x.data(), c.numColumns, c.numTokens, sums);
    for (int t = 0; t < c.numTokens; t++) y[t * c.numRows + row] = sums[t] + operands.bias[row];
  }
  check("float gemv", c, operands, y);
}

}  // namespace

int testProducts() {
  if (!isAvailable()) return 77;
  for (const int32_t dtype : {F32, F16, BF16}) {
    for (const int numTokens : {1, 2, 3, 13, 200}) {
      for (const int numColumns : {1, 67, 300}) testFloats({dtype, 37, numColumns, numTokens});
    }
  }
  for (const int32_t dtype : {Q8_0, Q4_0, Q4_K, Q5_K, Q6_K}) {
    for (const int numTokens : {4, 5, 129}) {
      for (const int numRows : {4, 36, 100}) testQgemm({dtype, numRows, 1280, numTokens});
    }
    for (int numTokens = 1; numTokens <= MAX_GEMV_TOKENS; numTokens++) testQgemv({dtype, 8, 1280, numTokens});
  }
  return numFailures;
}

}  // namespace WINNOW_NAMESPACE

int main() { return WINNOW_NAMESPACE::testProducts(); }
