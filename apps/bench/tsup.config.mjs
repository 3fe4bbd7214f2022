import { winnowTsup } from '@winnow/test-utils/tsup';

export default winnowTsup(
  {
    main: 'src/main.ts',
    docs: 'src/docs/main.ts',
    'roofline-worker': 'src/roofline/roofline-worker.ts',
    'peer-child': 'src/peer/child.ts',
    'winnow-page': 'src/browser/winnow-page.ts',
    'wllama-page': 'src/browser/wllama-page.ts',
    'long-run-child': 'src/suites/long-run-child.ts',
    'load-child': 'src/suites/load-child.ts',
  },
  { platform: 'node' },
);
