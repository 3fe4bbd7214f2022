import { fileURLToPath } from 'node:url';
import { defineConfig, mergeConfig } from 'vitest/config';

/** Vitest preset of the workspace: tests resolve the sources of sibling packages, never their build output. */
export function winnowVitest(overrides = {}) {
  const conditions = ['@winnow/source', 'module', 'node', 'import', 'default'];
  return mergeConfig(
    defineConfig({
      resolve: { conditions },
      ssr: { resolve: { conditions, externalConditions: ['node', 'import', 'default'] } },
      test: {
        include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
        setupFiles: [fileURLToPath(new URL('./setup.mjs', import.meta.url))],
        // one process and one copy of the sources for all files of a package: starting them anew for each took longer than
        // most files; a package whose tests replace modules sets `isolate` to true
        isolate: false,
        restoreMocks: true,
        unstubEnvs: true,
        testTimeout: 120_000,
        hookTimeout: 120_000,
        // `npm test` sums these reports; a plain `vitest run` of some files must not overwrite them.
        ...(process.env.WINNOW_TEST_REPORT
          ? { reporters: ['default', 'json'], outputFile: { json: 'node_modules/.vitest-report.json' } }
          : {}),
      },
    }),
    overrides,
  );
}
