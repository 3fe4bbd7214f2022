/** The entry points of one level, compiled once per level with its instructions. */
#include "level.h"
#include "../generated/kernels.h"
#include "peak.h"
#include "processor.h"

#define WINNOW_TEXT(name) #name
#define WINNOW_NAME(name) WINNOW_TEXT(name)

namespace WINNOW_NAMESPACE {

namespace {

bool measure(uint8_t* memory, uint32_t task, ScratchBytes* scratch) {
  const Record record(memory, task);
  const Kernel* kernel = kernelOf(record.task().opcode);
  if (kernel == nullptr || !kernel->supports(record)) return false;
  *scratch = {kernel->sharedBytes(record), kernel->localBytes(record)};
  return true;
}

bool run(uint8_t* memory, uint32_t task, BarrierCall barrier) {
  const Record record(memory, task);
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
const Level level = {WINNOW_NAME(WINNOW_LEVEL), isAvailable, selfTest, measure, run, measurePeak};

}  // namespace WINNOW_NAMESPACE
