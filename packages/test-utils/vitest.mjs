import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig, mergeConfig } from 'vitest/config';

const workspaceRoot = fileURLToPath(new URL('../..', import.meta.url));

/** Vitest preset of the workspace: tests resolve the sources of sibling packages, never their build output. */
export function winnowVitest(overrides = {}) {
  const conditions = ['@winnow/source', 'module', 'node', 'import', 'default'];
  return mergeConfig(
    defineConfig({
      // one root for all packages: sources that one of them has transformed come from the cache for the next
      root: workspaceRoot,
      resolve: { conditions },
      ssr: { resolve: { conditions, externalConditions: ['node', 'import', 'default'] } },
      test: {
        dir: process.cwd(),
        include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
        setupFiles: [fileURLToPath(new URL('./setup.mjs', import.meta.url))],
        // one process and one module graph for all files of a package: restarting takes longer than most files; a
        // package whose tests mock modules sets `isolate` to true
        isolate: false,
        restoreMocks: true,
        unstubEnvs: true,
        testTimeout: 120_000,
        hookTimeout: 120_000,
        // `npm test` sums these reports; a plain `vitest run` of some files must not overwrite them.
        ...(process.env.WINNOW_TEST_REPORT
          ? {
              reporters: ['default', 'json'],
              outputFile: { json: join(process.cwd(), 'node_modules/.vitest-report.json') },
            }
          : {}),
      },
    }),
    overrides,
  );
}

/** The same for tests that load the AWS SDK: its ES modules are for bundlers, and Node gets the others, also in tests. */
export function winnowVitestWithAwsSdk() {
  const config = winnowVitest({ test: { server: { deps: { external: [/@aws-sdk/, /@smithy/] } } } });
  for (const { resolve } of [config, config.ssr]) {
    resolve.conditions = resolve.conditions.filter((name) => name !== 'module');
  }
  return config;
}
