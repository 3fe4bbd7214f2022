import { winnowVitest } from './vitest.mjs';

export default winnowVitest();
