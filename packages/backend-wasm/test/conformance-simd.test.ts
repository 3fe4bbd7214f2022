import { describeWasm } from './conformance-suite.js';

describeWasm(
  {
    'simd, 1 thread, jobs by message': { relaxedSimd: false, numThreads: 1, usesMessages: true },
    'simd, 2 threads': { relaxedSimd: false, numThreads: 2 },
    'simd, 4 threads, all ops shared': { relaxedSimd: false, numThreads: 4, minSharedWork: 0 },
  },
  ['simd, 1 thread, jobs by message'],
);
