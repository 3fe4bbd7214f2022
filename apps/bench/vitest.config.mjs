import { fileURLToPath } from 'node:url';
import { winnowVitest } from '@winnow/test-utils/vitest';

export default winnowVitest({
  test: {
    globalSetup: [fileURLToPath(new URL('scripts/build-wasm.mjs', import.meta.url))],
    projects: [
      // ECharts numbers the elements of its plots per process: the file that compares plots runs in one of its own
      { extends: true, test: { name: 'alone', exclude: ['**/!(docs).test.ts'] } },
      { extends: true, test: { name: 'shared', exclude: ['**/docs.test.ts'] } },
    ],
  },
});
