/** Bundles page code from the sources of the workspace, one file per entry. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { repoRoot } from '@winnow/test-utils';
import { build, type BuildOptions } from 'esbuild';

export interface Bundle {
  readonly code: string;
  /** Bundled sources, relative to the workspace root. */
  readonly sources: readonly string[];
}

/** Resolves like a bundler for browsers, with sources of the workspace instead of build output. */
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
  // imported by describeBackend, which no page uses; that none of it remains is checked below
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

const pages = new Map<string, Promise<Bundle>>();

/**
 * Bundles `test/pages/<name>.ts`, once for all test files.
 * @throws if it imports a Node module
 */
export function bundlePage(name: string): Promise<Bundle> {
  const bundled =
    pages.get(name) ?? bundle({ entryPoints: [fileURLToPath(new URL(`../pages/${name}.ts`, import.meta.url))] });
  pages.set(name, bundled);
  return bundled;
}

/** Bundles page code from a document, with the imports of this package. */
export function bundleCode(contents: string): Promise<Bundle> {
  return bundle({ stdin: { contents, resolveDir: fileURLToPath(new URL('.', import.meta.url)) } });
}

/** Bundles a module for Node, with modules of Node and CommonJS packages as they are. */
export async function bundleForNode(contents: string, { minify }: { readonly minify: boolean }): Promise<string> {
  const banner = "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);";
  const { outputFiles } = await build({
    ...options,
    stdin: { contents, resolveDir: repoRoot },
    conditions: ['@winnow/source', 'node'],
    platform: 'node',
    banner: { js: banner },
    minify,
  });
  const [file] = outputFiles;
  if (file === undefined) throw new Error('esbuild wrote nothing');
  return file.text;
}

/**
 * Bundles all exports of a package for browsers.
 * @param name folder in `packages`
 * @param entry one of its exports
 * @throws if it imports a Node module
 */
export function bundlePackage(name: string, entry = ''): Promise<Bundle> {
  const contents = `export * from '@winnow/${name}${entry}';`;
  return bundle({ stdin: { contents, resolveDir: join(repoRoot, 'packages', name) } });
}
