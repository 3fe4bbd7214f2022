import { winnowVitest } from '@winnow/test-utils/vitest';

export default winnowVitest();
