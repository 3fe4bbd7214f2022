import { winnowVitest } from '@winnow/test-utils/vitest';

// half of its tests would run alone at the end of `npm test`, on one of two cores
export default winnowVitest({ test: { maxWorkers: 2 } });
