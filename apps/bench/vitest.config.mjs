import { fileURLToPath } from 'node:url';
import { winnowVitest } from '@winnow/test-utils/vitest';

// ECharts numbers the elements of its plots per process, so files that draw must not share one.
export default winnowVitest({
  test: { globalSetup: [fileURLToPath(new URL('scripts/build-wasm.mjs', import.meta.url))], isolate: true },
});
