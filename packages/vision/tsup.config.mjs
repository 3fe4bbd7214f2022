import { winnowTsup } from '@winnow/test-utils/tsup';

export default winnowTsup(['src/index.ts', 'src/index.node.ts', 'src/index.browser.ts']);
