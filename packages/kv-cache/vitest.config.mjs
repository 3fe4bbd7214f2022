import { winnowVitest } from '@winnow/test-utils/vitest';

// files that share backends dispose them at their end
export default winnowVitest({ test: { isolate: true } });
