import { describeVariant } from './conformance-suite.js';

describeVariant('relaxed, on the calling thread', { relaxedSimd: true, numThreads: 1, maxCallerMs: 1000 });
describeVariant('relaxed, 1 worker', { relaxedSimd: true, numThreads: 1 });
describeVariant('relaxed, 2 threads, all ops shared', { relaxedSimd: true, numThreads: 2, minSharedWork: 0 });
describeVariant('relaxed, 4 threads', { relaxedSimd: true, numThreads: 4 });
describeVariant('relaxed, without shared memory', { relaxedSimd: true, sharedMemory: false });
