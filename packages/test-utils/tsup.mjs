import { defineConfig } from 'tsup';

/**
 * Build preset: ESM JavaScript only, one file per entry; `tsc` writes the declarations.
 * @param {string[] | Record<string, string>} entry
 * @param {import('tsup').Options} overrides
 */
export function winnowTsup(entry = ['src/index.ts'], overrides = {}) {
  return defineConfig({
    entry,
    format: ['esm'],
    target: 'es2024',
    platform: 'neutral',
    dts: false,
    sourcemap: true,
    clean: true,
    external: [/^node:/],
    ...overrides,
  });
}
