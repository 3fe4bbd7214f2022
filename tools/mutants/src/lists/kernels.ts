/** Defects in WebAssembly kernels and their host. */
import type { Mutant } from '../mutant.ts';

export const kernelsMutants: readonly Mutant[] = [
  {
    file: 'packages/backend-wasm/src/region-allocator.ts',
    find: 'free.splice(index + 1, 1);',
    replace: 'free.splice(index, 1);',
    tests: ['test/lifecycle.test.ts'],
  },
  {
    file: 'packages/backend-wasm/src/heap.ts',
    find: 'highest = Math.max(highest, end);',
    replace: 'highest = Math.min(highest, end);',
    tests: ['test/lifecycle.test.ts'],
  },
  {
    file: 'packages/backend-wasm/assembly/gemm/repack.ts',
    find: 'return (bits & 0x8000) | ((top + 1) << 10) | ((magnitude << (10 - top)) & 0x3ff);',
    replace: 'return ((top + 1) << 10) | ((magnitude << (10 - top)) & 0x3ff);',
    tests: ['test/int8.test.ts'],
  },
  {
    file: 'packages/backend-wasm/assembly/quant/dequantize.ts',
    find: 'const scale = (low | (((scalesHigh >> (sub << 1)) & 3) << 4)) - 32;',
    replace: 'const scale = (low | (((scalesHigh >> (sub << 1)) & 1) << 4)) - 32;',
    tests: ['test/conformance-simd.test.ts'],
    only: 'embedding-lookup',
  },
  {
    file: 'packages/backend-wasm/assembly/ops/pointwise.ts',
    find: 'const z = <f64>x * -0.7071067811865476;',
    replace: 'const z = <f64>x * -0.7071;',
    tests: ['test/conformance-simd.test.ts'],
    only: 'activation',
  },
];
