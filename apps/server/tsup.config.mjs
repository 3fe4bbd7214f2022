import { winnowTsup } from '@winnow/test-utils/tsup';

export default winnowTsup(['src/index.ts', 'src/router/index.ts'], { platform: 'node' });
