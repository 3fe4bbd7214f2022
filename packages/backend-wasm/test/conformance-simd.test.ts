import { describeWasm } from './conformance-suite.js';
import { createScattered } from './scattered.js';

describeWasm(
  {
    'simd, 1 thread, jobs by message': { relaxedSimd: false, numThreads: 1, usesMessages: true },
    'simd, 2 threads': { relaxedSimd: false, numThreads: 2 },
    'simd, 4 threads, all ops shared': { relaxedSimd: false, numThreads: 4, minSharedWork: 0 },
  },
  ['simd, 1 thread, jobs by message'],
  {
    'simd, 2 threads, every buffer in another memory': async () => {
      const options = { relaxedSimd: false, numThreads: 2, activations: 'f32', maxCallerMs: 0 } as const;
      return (await createScattered(3, options)).backend;
    },
  },
);
