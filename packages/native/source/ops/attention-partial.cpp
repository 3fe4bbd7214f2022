/** Partial states of split-KV attention, one for each split of the context. */
#include "../generated/operands/attention-partial.h"
#include "../attention/flash-attention.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
namespace op = operands::attention_partial;

void run(const Record& record, Threads& threads) {
  const FlashOutput output = {op::m::address(record), op::l::address(record), op::o::address(record)};
  flashAttention(KvCache(record), output, op::attributes::numParts(record), false, record.localScratch(), threads);
}
}  // namespace

extern const Kernel attentionPartialKernel = {hasRowTypes, noScratch, tileScratchBytes, run};
}  // namespace WINNOW_NAMESPACE
