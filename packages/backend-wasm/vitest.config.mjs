import { fileURLToPath } from 'node:url';
import { winnowVitest } from '@winnow/test-utils/vitest';

export default winnowVitest({
  test: {
    globalSetup: [fileURLToPath(new URL('scripts/build-wasm.mjs', import.meta.url))],
    projects: [
      // one file measures the memory of its process, which therefore runs no other
      { extends: true, test: { name: 'alone', exclude: ['**/!(lifecycle).test.ts'] } },
      { extends: true, test: { name: 'shared', exclude: ['**/lifecycle.test.ts'] } },
    ],
  },
});
