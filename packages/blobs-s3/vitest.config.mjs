import { winnowVitest } from '@winnow/test-utils/vitest';

const config = winnowVitest({ test: { server: { deps: { external: [/@aws-sdk/, /@smithy/] } } } });
// the ES modules of the AWS SDK are for bundlers: Node gets the others, also in tests
for (const { resolve } of [config, config.ssr]) {
  resolve.conditions = resolve.conditions.filter((name) => name !== 'module');
}

export default config;
