/**
 * Writes every generated file of this package; `--check [folder]` reports stale ones instead, there or in another
 * folder.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { format } from 'oxfmt';
import { constantFiles } from './constants.ts';
import { dispatchFiles } from './dispatch.ts';
import { dtypeFiles } from './dtypes.ts';
import { layoutFiles } from './layout-files.ts';
import { microkernelFiles } from './microkernels.ts';
import { nativeFiles, nativeFolders } from './native-files.ts';
import { operandFiles } from './operands.ts';

const { supportTable } = await import('@winnow/conformance');
const [mode, folder] = process.argv.slice(2);
const isCheck = mode === '--check';
const ownFolder = dirname(dirname(fileURLToPath(import.meta.url)));
const packageFolder = (isCheck ? folder : undefined) ?? ownFolder;
const style = { singleQuote: true, printWidth: 120 };
/** Compiled kernels, which `scripts/build-wasm.mjs` writes and git ignores. */
const compiled = 'src/kernels/kernels.generated.ts';

const kernelFiles = [...microkernelFiles].map(([name, source]): [string, string] => [`assembly/${name}`, source]);

const files = new Map([
  ...kernelFiles,
  ...layoutFiles,
  ...constantFiles,
  ...dtypeFiles,
  ...operandFiles,
  ...dispatchFiles,
  ...nativeFiles,
]);

/** Headers are always those of `packages/native`, whichever folder is checked. */
function pathOf(name: string): string {
  return join(name.startsWith('../') ? ownFolder : packageFolder, name);
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** Generated files that no generator writes anymore. */
function leftovers(): string[] {
  const paths = ['assembly', 'src'].flatMap((folder) =>
    readdirSync(join(packageFolder, folder), { recursive: true, encoding: 'utf8' }).map((path) => `${folder}/${path}`),
  );
  const headers = nativeFolders.flatMap((folder) =>
    readdirSync(pathOf(folder), { recursive: true, encoding: 'utf8' }).map((path) => `${folder}/${path}`),
  );
  return [
    ...paths.filter((path) => path.endsWith('.generated.ts') && path !== compiled && !files.has(path)),
    ...headers.filter((path) => path.endsWith('.h') && !files.has(path)),
  ];
}

/** oxfmt does not read C++: the generators of headers write formatted text. */
async function formatted(path: string, source: string): Promise<string> {
  if (path.endsWith('.h')) return source;
  const { code, errors } = await format(path, source, style);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]?.message}`);
  return code;
}

/** Whether a file is stale; writes it unless in check mode. */
async function isStale(name: string, source: string): Promise<boolean> {
  const path = pathOf(name);
  const code = await formatted(path, source);
  if (textOf(path) === code) return false;
  if (!isCheck) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, code);
  }
  return true;
}

async function stalePaths(): Promise<readonly string[]> {
  const stale = leftovers();
  if (!isCheck) for (const name of stale) rmSync(pathOf(name));
  for (const [name, source] of files) if (await isStale(name, source)) stale.push(name);
  // the support table follows from the list of kernels, which was just written
  const { supportOf } = await import('../src/kernels/support.ts');
  const table = JSON.stringify(supportTable({ supports: supportOf }), null, 2);
  if (await isStale('test/support.json', table)) stale.push('test/support.json');
  return stale;
}

const stale = await stalePaths();
if (isCheck && stale.length > 0) {
  process.stderr.write(`stale generated files, run "pnpm codegen" in packages/backend-wasm: ${stale.join(', ')}\n`);
  process.exitCode = 1;
}
