import { winnowVitest } from '@winnow/test-utils/vitest';

// one file at a time: the threads of the browser need the cores
export default winnowVitest({
  test: { fileParallelism: false, globalSetup: [`${import.meta.dirname}/test/support/start-chromium.ts`] },
});
