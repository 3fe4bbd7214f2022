/** Bundles page code from the sources of the workspace, one file per entry. */
import { readdirSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { repoRoot } from '@winnow/test-utils';
import { build, type BuildOptions, type Plugin } from 'esbuild';

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

/** Bundles entries into files of `outdir`: sources that several of them have are read once. */
async function bundleAll(entry: BuildOptions): Promise<ReadonlyMap<string, Bundle>> {
  const { metafile, outputFiles } = await build({ ...options, ...entry, metafile: true, write: false });
  const codes = new Map(outputFiles.map(({ path, text }) => [relative(repoRoot, path), text]));
  const bundles = Object.entries(metafile.outputs).map(([path, { imports, inputs }]) => {
    if (imports.length > 0) {
      throw new Error(`imports are left in the bundle: ${imports.map((one) => one.path).join(', ')}`);
    }
    const sources = Object.keys(inputs).filter((source) => (inputs[source]?.bytesInOutput ?? 0) > 0);
    return [path, { code: codes.get(path) as string, sources }] as const;
  });
  return new Map(bundles);
}

/** Bundles entries by name. */
async function bundleNamed(entries: ReadonlyMap<string, string>, entry: BuildOptions = {}): Promise<Bundles> {
  const entryPoints = [...entries].map(([name, path]) => ({ in: path, out: name }));
  const bundles = await bundleAll({ ...entry, entryPoints, outdir: 'bundles' });
  return new Map([...entries.keys()].map((name) => [name, bundles.get(`bundles/${name}.js`) as Bundle]));
}

/** By name. */
type Bundles = ReadonlyMap<string, Bundle>;

const pagesFolder = fileURLToPath(new URL('../pages/', import.meta.url));
let pages: Promise<Bundles> | undefined;

/**
 * Bundles `test/pages/<name>.ts`, and all others with it, once for all test files.
 * @throws if one of them imports a Node module
 */
export async function bundlePage(name: string): Promise<Bundle> {
  const paths = readdirSync(pagesFolder).map((file) => [basename(file, '.ts'), join(pagesFolder, file)] as const);
  pages ??= bundleNamed(new Map(paths));
  return (await pages).get(name) as Bundle;
}

/** Bundles page code from a document, with the imports of this package. */
export async function bundleCode(contents: string): Promise<Bundle> {
  const stdin = { contents, resolveDir: fileURLToPath(new URL('.', import.meta.url)) };
  return (await bundleAll({ stdin, outfile: 'bundle.js' })).get('bundle.js') as Bundle;
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

/** Finds `exports of <package>`, a module with all exports of a package. */
const packageExports: Plugin = {
  name: 'exports of packages',
  setup(plugins) {
    plugins.onResolve({ filter: /^exports of / }, ({ path }) => ({
      path: path.slice('exports of '.length),
      namespace: 'exports',
    }));
    plugins.onLoad({ filter: /.*/, namespace: 'exports' }, ({ path }) => ({
      contents: `export * from '@winnow/${path}';`,
      resolveDir: join(repoRoot, 'packages', path.split('/')[0] as string),
    }));
  },
};

/**
 * Bundles all exports of each of these packages for browsers.
 * @param names folders in `packages`, each with an export of it or without, as in `hub/node`
 * @throws if one of them imports a Node module
 */
export function bundlePackages(names: readonly string[]): Promise<Bundles> {
  return bundleNamed(new Map(names.map((name) => [name, `exports of ${name}`])), { plugins: [packageExports] });
}
