import { winnowVitestWithAwsSdk } from '@winnow/test-utils/vitest';

export default winnowVitestWithAwsSdk();
