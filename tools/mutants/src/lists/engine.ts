/** Defects in models, the engine and the KV cache. */
import type { Mutant } from '../mutant.ts';

export const engineMutants: readonly Mutant[] = [
  {
    file: 'packages/models/src/blocks/experts.ts',
    find: 'return experts.sharedFfnDim === 0 ? y : add(step, y, sharedExpert(step, layer, x));',
    replace: 'return y;',
    tests: ['test/experts.test.ts', 'packages/engine/test/goldens/architectures.test.ts'],
  },
  {
    file: 'packages/models/src/architectures/lfm2.ts',
    find: 'return multiple * Math.ceil(scaled / multiple);',
    replace: 'return multiple * Math.floor(scaled / multiple);',
    tests: ['src/model-configs.test.ts', 'test/recurrent.test.ts', 'test/variants.test.ts'],
  },
  {
    file: 'packages/models/src/lora/add-adapters.ts',
    find: 'for (let row = 0; row < b.length / rank; row++) {',
    replace: 'for (let row = 1; row < b.length / rank; row++) {',
    tests: ['packages/engine/test/load/adapters.test.ts'],
  },
  {
    file: 'packages/models/src/blocks/rotary.ts',
    find: 'const isLong = beyond !== undefined && step.contextSize > beyond.contextLength;',
    replace: 'const isLong = beyond !== undefined;',
    tests: ['test/variants.test.ts', 'packages/engine/test/goldens/architectures.test.ts'],
  },
  {
    file: 'packages/models/src/architectures/qwen35.ts',
    find: "yield* matrix(['attn_k', 'k_proj'], numKvHeads * headDim, hiddenDim);",
    replace: "yield* matrix(['attn_k', 'k_proj'], hiddenDim, numKvHeads * headDim);",
    tests: ['packages/engine/test/goldens/architectures.test.ts'],
  },
  {
    file: 'packages/engine/src/generation/sampler.ts',
    find: 'if (mask !== undefined) for (let i = 0; i < numKept; i++)',
    replace: 'if (mask !== undefined) for (let i = 1; i < numKept; i++)',
    tests: ['src/generation/sampler.test.ts'],
  },
  {
    file: 'packages/engine/src/generation/stop-matcher.ts',
    find: 'const starts = this.#stops.map((stop) => all.indexOf(stop)).filter((start) => start >= 0);',
    replace: 'const starts = this.#stops.map((stop) => all.indexOf(stop)).filter((start) => start > 0);',
    tests: ['src/generation/stop-matcher.test.ts'],
  },
  {
    file: 'packages/engine/src/runtime/scheduler.ts',
    find: 'const signal = batch.length === 1 ? first.request.signal : undefined;',
    replace: 'const { signal } = first.request;',
    tests: ['test/runtime/batching.test.ts', 'test/generation/failures.test.ts', 'test/load/closing.test.ts'],
  },
  {
    file: 'packages/engine/src/runtime/sequence.ts',
    find: 'if (numEvicted > 0 && !(mayHaveGaps && numKept === numTokens)) numKept = 0;',
    replace: '',
    tests: ['src/runtime/sequence.test.ts', 'test/generation/overflow.test.ts', 'test/plan/eviction.test.ts'],
  },
  {
    file: 'packages/engine/src/chat/reader.ts',
    find: 'for (let length = Math.min(marker.length - 1, text.length); length > 0; length--) {',
    replace: 'for (let length = Math.min(marker.length - 2, text.length); length > 0; length--) {',
    tests: ['test/chat/tools.test.ts'],
  },
  {
    file: 'packages/engine/src/kv-offload/pages/list.ts',
    find: 'const slots = ofBlock.subarray(part * pageSize, (part + 1) * pageSize);',
    replace: 'const slots = ofBlock.subarray(0, pageSize);',
    tests: ['test/kv-offload/policies.test.ts'],
  },
  {
    file: 'packages/engine/src/kv-offload/pages/boxes.ts',
    find: 'return { count, keyMin: resident, minBegin: minBegin + at, keyMax: resident, maxBegin: maxBegin + at };',
    replace: 'return { count, keyMin: resident, minBegin, keyMax: resident, maxBegin: maxBegin + at };',
    tests: ['test/kv-offload/policies.test.ts'],
  },
  {
    file: 'packages/kv-cache/src/blocks/block-pool.ts',
    find: 'if (this.#contentOfBlock[block] === 0) this.#free.push(block);',
    replace: 'this.#free.push(block);',
    tests: ['src/blocks/block-manager.property.test.ts', 'src/blocks/block-manager.test.ts'],
  },
  {
    file: 'packages/kv-cache/src/blocks/prefix-index.ts',
    find: 'const tokens = state.tokens.view().subarray(begin, begin + blockSize);',
    replace: 'const tokens = state.tokens.view().subarray(begin, begin + blockSize - 1);',
    tests: ['src/blocks/block-manager.property.test.ts', 'src/blocks/block-manager.test.ts'],
  },
  {
    file: 'packages/kv-cache/src/blocks/restore-sequence.ts',
    find: "if (seen[position] === 1) refuse('every position once', `${position} twice`);",
    replace: '',
    tests: ['src/blocks/restore-sequence.test.ts'],
  },
  {
    file: 'packages/kv-cache/src/sessions/layout.ts',
    find: 'return Math.ceil(headerBytes / 8) * 8;',
    replace: 'return Math.floor(headerBytes / 8) * 8;',
    tests: ['src/sessions/session.test.ts'],
  },
  {
    file: 'packages/engine/src/generation/sampler.ts',
    find: 'numLeft < numKept && mass < topP * sum; numLeft++',
    replace: 'numLeft < numKept && mass < topP; numLeft++',
    tests: ['src/generation/sampler.test.ts'],
  },
  {
    file: 'packages/engine/src/generation/sampler.ts',
    find: '(this.#rawLogits === undefined ? this.#logits[index] : this.#rawLogits[tokenId])',
    replace: 'this.#logits[index]',
    tests: ['src/generation/sampler.test.ts'],
  },
  {
    file: 'packages/engine/src/generation/sampler.ts',
    find: 'Math.exp(((logits[i] as number) - best) / this.#sampling.temperature);',
    replace: 'Math.exp((logits[i] as number) - best);',
    tests: ['src/generation/sampler.test.ts'],
  },
  {
    file: 'packages/kv-cache/src/eviction/window-policy.ts',
    find: 'if (positions[slot] >= begin && positions[slot] < end) slots.push(slot);',
    replace: 'if (positions[slot] >= begin && positions[slot] <= end) slots.push(slot);',
    tests: ['src/eviction/eviction.test.ts'],
  },
];
