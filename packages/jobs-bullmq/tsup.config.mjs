import { winnowTsup } from '@winnow/test-utils/tsup';

export default winnowTsup(['src/index.node.ts', 'src/postgres.node.ts']);
