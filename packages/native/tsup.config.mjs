import { winnowTsup } from '@winnow/test-utils/tsup';

export default winnowTsup(['src/index.ts'], { removeNodeProtocol: false });
