/** The entry points of one level, compiled once per level with its instructions. */
#include "simd/level.h"
#include "generated/kernels.h"
#include "runtime/processor.h"
#if defined(__AVX512VNNI__)
#include "simd/tiles.h"
#endif

#define WINNOW_TEXT(name) #name
#define WINNOW_NAME(name) WINNOW_TEXT(name)

namespace WINNOW_NAMESPACE {
namespace {
template <bool TILES> bool measure(uint8_t* memory, uint32_t task, ScratchBytes* scratch) {
  const Record record(memory, task, TILES);
  const Kernel* kernel = kernelOf(record.task().opcode);
  if (kernel == nullptr || !kernel->supports(record)) return false;
  *scratch = {kernel->sharedBytes(record), kernel->localBytes(record)};
  return true;
}

template <bool TILES> bool run(uint8_t* memory, uint32_t task, BarrierCall barrier) {
  const Record record(memory, task, TILES);
  const Kernel* kernel = kernelOf(record.task().opcode);
  if (kernel->takes != nullptr && !kernel->takes(record)) return false;
  Threads threads(memory, record.task(), barrier);
  kernel->run(record, threads);
  return true;
}

double measurePeak(Peak peak, const uint8_t* bytes, uint64_t count) {
  if (peak == Peak::Floats) return peakFloats(count);
  return peak == Peak::Products ? peakProducts(count) : readBytes(bytes, count);
}
}  // namespace

extern const Level level;
const Level level = {WINNOW_NAME(WINNOW_LEVEL), isAvailable, selfTest, measure<false>, run<false>, measurePeak};

#if defined(__AVX512VNNI__)
/** The level amx: that of AVX-512, and 8-bit matrix products of many tokens by tiles. */
extern const Level tileLevel;
const Level tileLevel = {"amx", hasTiles, selfTestTiles, measure<true>, run<true>, [](Peak peak, const uint8_t* bytes, uint64_t count) {
                           return peak == Peak::Products ? peakTiles(count) : measurePeak(peak, bytes, count);
                         }};
#endif
}  // namespace WINNOW_NAMESPACE
