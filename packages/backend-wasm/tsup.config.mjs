import { winnowTsup } from '@winnow/test-utils/tsup';

export default winnowTsup(['src/index.ts', 'src/host/host.node.ts', 'src/host/host.browser.ts'], {
  external: [/^node:/, '#host'],
});
