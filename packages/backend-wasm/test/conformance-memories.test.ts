import { describeOther } from './conformance-suite.js';
import { createScattered } from './scattered.js';

describeOther('simd, 2 threads, every buffer in another memory', async () => {
  const options = { relaxedSimd: false, numThreads: 2, activations: 'f32', maxCallerMs: 0 } as const;
  return (await createScattered(3, options)).backend;
});
