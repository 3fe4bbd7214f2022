import { winnowTsup } from '@winnow/test-utils/tsup';

// `node:sqlite` has no name without `node:`
export default winnowTsup(['src/index.ts', 'src/index.node.ts', 'src/testing.ts'], { removeNodeProtocol: false });
