/** Defects in native kernels, which the conformance cases at each level find. They need a C++ compiler. */
import type { Mutant } from '../mutant.ts';

const conformance = (op: string): Pick<Mutant, 'tests' | 'only'> => ({
  tests: ['packages/backend-wasm/test/conformance.test.ts'],
  only: `native kernels.*${op}`,
});

export const nativeKernelsMutants: readonly Mutant[] = [
  {
    file: 'packages/native/source/attention/slot-chunks.h',
    find: 'cache.isChunked ? cache.reachOf(position) : 0',
    replace: '0',
    ...conformance('attention'),
  },
  {
    file: 'packages/native/source/ops/sparq-attention.cpp',
    find: 'scratch_.visible.positions[i] > oldest',
    replace: 'scratch_.visible.positions[i] >= oldest',
    ...conformance('sparq-attention'),
  },
  {
    file: 'packages/native/source/ops/sparq-attention.cpp',
    find: 'if (from_.meanCounts[summary] != from_.partSize) return false;',
    replace: '',
    ...conformance('sparq-attention'),
  },
  {
    file: 'packages/native/source/ops/page-topk-attention.cpp',
    find: 'rests[i + 1] + scratch_.terms[scratch_.order[i]]',
    replace: 'rests[i + 1] + scratch_.terms[i]',
    ...conformance('page-topk-attention'),
  },
  {
    file: 'packages/native/source/ops/h2o-attention.cpp',
    find: 'first + lane >= tile.numLanes() ||',
    replace: 'first + lane > tile.numLanes() ||',
    ...conformance('h2o-attention'),
  },
  {
    file: 'packages/native/source/ops/h2o-attention.cpp',
    find: 'positionOf(i) >= first + from_.chunk - from_.local',
    replace: 'positionOf(i) > first + from_.chunk - from_.local',
    ...conformance('h2o-attention'),
  },
  {
    file: 'packages/native/source/ops/attention.cpp',
    find: 'sum += states.sums[at] * factor;',
    replace: 'sum += states.sums[at];',
    ...conformance('attention$'),
  },
  {
    file: 'packages/native/source/gemm/qgemm.cpp',
    find: 'FORMAT::scaling == Scaling::Halves && k >= TILE_SIZE / 2 ? block.b : block.a',
    replace: 'block.a',
    tests: ['packages/native/test/build.test.ts'],
    only: 'tiles-avx512-emulated',
  },
  {
    file: 'packages/native/source/gemm/qgemm.cpp',
    find: 'const uint16_t* next = t + TILE_SIZE < last ? x + TILE_SIZE * stride : x;',
    replace: 'const uint16_t* next = x;',
    tests: ['packages/native/test/build.test.ts'],
    only: 'tiles-avx512-emulated',
  },
  {
    file: 'packages/backend-wasm/src/host/web-assembly.ts',
    find: 'Atomics.store(new Int32Array(buffer), controlWords.nativeOff / 4, 1);',
    replace: 'Atomics.store(new Int32Array(buffer), controlWords.nativeOff / 4, 0);',
    tests: ['packages/backend-wasm/test/native.test.ts'],
  },
  {
    file: 'packages/backend-wasm/src/program/program-part.ts',
    find: 'const placed = placePart(part, planned, options, false);',
    replace: 'const placed = placePart(part, planned, options);',
    tests: ['packages/backend-wasm/test/native.test.ts'],
  },
  {
    file: 'packages/native/source/gemm/int8-matmul.cpp',
    find: 'numTokens_ >= MIN_PANEL_TOKENS && !record_.isInvariant(numTokens_);',
    replace: 'numTokens_ >= MIN_PANEL_TOKENS;',
    tests: ['packages/backend-wasm/test/batch-invariance.test.ts'],
    only: 'int8 activations',
  },
  {
    file: 'packages/native/source/addon/fault.cpp',
    find: 'if (afterFault != nullptr && info->si_code > 0) siglongjmp(*afterFault, 1);',
    replace: '',
    tests: ['packages/native/test/fault.test.ts'],
  },
  {
    file: 'packages/native/source/addon/fault.cpp',
    find: 'SA_SIGINFO | SA_NODEFER | SA_ONSTACK',
    replace: 'SA_SIGINFO | SA_ONSTACK',
    tests: ['packages/native/test/fault.test.ts'],
  },
  {
    file: 'packages/native/source/addon/fault.cpp',
    find: '(earlierActions[i].sa_flags & SA_SIGINFO) != 0',
    replace: 'false',
    tests: ['packages/native/test/fault.test.ts'],
  },
  {
    file: 'packages/native/src/crash-record.node.ts',
    find: '(isAlive(pid) && start === present.start)',
    replace: 'false',
    tests: ['packages/native/test/crash-record.test.ts'],
  },
  {
    file: 'packages/native/src/crash-record.node.ts',
    find: 'this.#hasReturned ||= isComputing;',
    replace: 'this.#hasReturned = true;',
    tests: ['packages/native/test/crash-record.test.ts'],
  },
  {
    file: 'packages/native/src/crash-record.node.ts',
    find: 'if (--this.#numInside === 0)',
    replace: '--this.#numInside;',
    tests: ['packages/native/test/crash-record.test.ts'],
  },
  {
    file: 'packages/backend-wasm/src/program/first-runs.ts',
    find: 'isComplete && seen.add(magnitudes)',
    replace: 'isComplete && seen.clear()',
    tests: ['packages/backend-wasm/test/native.test.ts'],
  },
  {
    file: 'packages/backend-wasm/src/host/web-assembly.ts',
    find: 'if (native !== undefined) {',
    replace: 'if (native === undefined) {',
    tests: ['packages/backend-wasm/test/native.test.ts'],
  },
  {
    file: 'packages/engine/src/load/resources.ts',
    find: 'createOwnBackend(options, false)',
    replace: 'createOwnBackend(options)',
    tests: ['packages/engine/test/native/loss.test.ts'],
  },
];
