import { describeVariant } from './conformance-suite.js';

describeVariant('simd, 1 thread, jobs by message', { relaxedSimd: false, numThreads: 1, usesMessages: true });
describeVariant('simd, 2 threads', { relaxedSimd: false, numThreads: 2 });
describeVariant('simd, 4 threads, all ops shared', { relaxedSimd: false, numThreads: 4, minSharedWork: 0 });
