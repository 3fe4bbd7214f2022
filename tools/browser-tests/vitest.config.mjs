import { winnowVitest } from '@winnow/test-utils/vitest';

// one browser at a time: its threads need the cores
export default winnowVitest({ test: { fileParallelism: false } });
