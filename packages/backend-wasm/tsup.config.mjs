import { winnowTsup } from '@winnow/test-utils/tsup';

export default winnowTsup(['src/index.ts', 'src/host.node.ts', 'src/host.browser.ts'], {
  external: [/^node:/, '#host'],
});
