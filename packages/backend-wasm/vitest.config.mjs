import { winnowVitest } from '@winnow/test-utils/vitest';

export default winnowVitest({ test: { globalSetup: ['scripts/build-wasm.mjs'], isolate: true } });
