import { winnowVitest } from '@winnow/test-utils/vitest';

export default winnowVitest({
  test: {
    projects: [
      // one file mocks node:worker_threads, which must happen before any other file loads a backend
      { extends: true, test: { name: 'alone', exclude: ['**/!(loss).test.ts'] } },
      { extends: true, test: { name: 'shared', exclude: ['**/loss.test.ts'] } },
    ],
  },
});
