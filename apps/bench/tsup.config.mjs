import { winnowTsup } from '@winnow/test-utils/tsup';

export default winnowTsup(
  {
    main: 'src/main.ts',
    'roofline-worker': 'src/roofline/roofline-worker.ts',
    'peer-child': 'src/peer/peer-child.ts',
    'long-run-child': 'src/suites/long-run-child.ts',
  },
  { platform: 'node' },
);
