import { describeWasm } from './conformance-suite.js';

describeWasm(
  {
    'relaxed, on the calling thread': { relaxedSimd: true, numThreads: 1, maxCallerMs: 1000 },
    'relaxed, 1 worker': { relaxedSimd: true, numThreads: 1 },
    'relaxed, 2 threads, all ops shared': { relaxedSimd: true, numThreads: 2, minSharedWork: 0 },
    'relaxed, 4 threads': { relaxedSimd: true, numThreads: 4 },
    'relaxed, without shared memory': { relaxedSimd: true, sharedMemory: false },
  },
  ['relaxed, on the calling thread', 'relaxed, 2 threads, all ops shared', 'relaxed, without shared memory'],
);
