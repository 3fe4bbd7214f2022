import { winnowVitest } from '@winnow/test-utils/vitest';

const config = winnowVitest();
// Vitest passes the conditions to Node, where `import` would apply to `require` in pg, too, which then finds an ES module
config.ssr.resolve.conditions = config.ssr.resolve.conditions.filter((condition) => condition !== 'import');

export default config;
