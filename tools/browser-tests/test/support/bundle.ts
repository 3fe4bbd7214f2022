/** Code for the page: one file per entry, made of the sources of the workspace. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { repoRoot } from '@winnow/test-utils';
import { build, type BuildOptions } from 'esbuild';

export interface Bundle {
  readonly code: string;
  /** Sources that are part of it, relative to the root of the workspace. */
  readonly sources: readonly string[];
}

/** As a bundler for browsers resolves, but sources of our packages instead of their build output. */
const options = {
  bundle: true,
  format: 'esm',
  platform: 'browser',
  target: 'es2024',
  conditions: ['@winnow/source'],
  absWorkingDir: repoRoot,
  metafile: true,
  write: false,
  logLevel: 'silent',
  // describeBackend, which no page uses, wants it; that nothing of it is left is checked below
  external: ['vitest'],
} satisfies BuildOptions;

async function bundle(entry: BuildOptions): Promise<Bundle> {
  const { metafile, outputFiles } = await build({ ...options, ...entry, metafile: true, write: false });
  const [output] = Object.values(metafile.outputs);
  const [file] = outputFiles;
  if (output === undefined || file === undefined) throw new Error('esbuild wrote nothing');
  if (output.imports.length > 0) {
    throw new Error(`imports are left in the bundle: ${output.imports.map(({ path }) => path).join(', ')}`);
  }
  const sources = Object.keys(output.inputs).filter((path) => output.inputs[path].bytesInOutput > 0);
  return { code: file.text, sources };
}

/**
 * Bundles `test/pages/<name>.ts`.
 * @throws when something in it needs Node
 */
export function bundlePage(name: string): Promise<Bundle> {
  return bundle({ entryPoints: [fileURLToPath(new URL(`../pages/${name}.ts`, import.meta.url))] });
}

/** Bundles a page whose code is in a document; it imports what this package does. */
export function bundleCode(contents: string): Promise<Bundle> {
  return bundle({ stdin: { contents, resolveDir: fileURLToPath(new URL('.', import.meta.url)) } });
}

/**
 * Bundles everything that a package exports to browsers.
 * @param name of the folder in `packages`
 * @param entry one of its exports
 * @throws when something in it needs Node
 */
export function bundlePackage(name: string, entry = ''): Promise<Bundle> {
  const contents = `export * from '@winnow/${name}${entry}';`;
  return bundle({ stdin: { contents, resolveDir: join(repoRoot, 'packages', name) } });
}
