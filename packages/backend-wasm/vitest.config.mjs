import { fileURLToPath } from 'node:url';
import { winnowVitest } from '@winnow/test-utils/vitest';

export default winnowVitest({
  test: { globalSetup: [fileURLToPath(new URL('scripts/build-wasm.mjs', import.meta.url))], isolate: true },
});
