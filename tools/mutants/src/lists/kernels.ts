/** Defects in WebAssembly kernels and their host. */
import type { Mutant } from '../mutant.ts';

export const kernelsMutants: readonly Mutant[] = [
  {
    file: 'packages/backend-wasm/assembly/ops/gated-delta.ts',
    find: 'if (stateFrom < 0) memory.fill(memoryAt, 0, sizeBytes);',
    replace: '',
    tests: ['test/conformance-simd.test.ts'],
    only: 'gated-delta',
  },
  {
    file: 'packages/backend-wasm/src/region-allocator.ts',
    find: 'free.splice(index + 1, 1);',
    replace: 'free.splice(index, 1);',
    tests: ['test/lifecycle.test.ts'],
  },
  {
    file: 'packages/backend-wasm/src/split-program.ts',
    find: 'if (to > from) starts[part].add(partBegin);',
    replace: '',
    tests: ['src/split-program.test.ts'],
  },
  {
    file: 'packages/backend-wasm/src/heap.ts',
    find: 'highest = Math.max(highest, end);',
    replace: 'highest = Math.min(highest, end);',
    tests: ['test/lifecycle.test.ts'],
  },
];
