import { readFileSync } from 'node:fs';
import { describeBackend, type SupportTable } from '@winnow/conformance';
import { createScattered } from './scattered.js';

const support = JSON.parse(readFileSync(new URL('support.json', import.meta.url), 'utf8')) as SupportTable;

describeBackend({
  name: 'simd, 2 threads, every buffer in another memory',
  expectedSupport: support,
  create: async () => {
    const options = { relaxedSimd: false, numThreads: 2, activations: 'f32', maxCallerMs: 0 } as const;
    return (await createScattered(3, options)).backend;
  },
});
