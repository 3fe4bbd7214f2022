/** Writes every generated file of this package; with `--check` says which are stale instead. */
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { format } from 'oxfmt';
import { microkernelFiles } from './microkernels.ts';

const packageFolder = dirname(dirname(fileURLToPath(import.meta.url)));
const style = { singleQuote: true, printWidth: 120 };

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

async function stalePaths(shouldWrite: boolean): Promise<readonly string[]> {
  const stale: string[] = [];
  for (const [name, source] of microkernelFiles) {
    const path = join(packageFolder, 'assembly', name);
    const { code, errors } = await format(path, source, style);
    if (errors.length > 0) throw new Error(`${name}: ${errors[0]?.message}`);
    if (textOf(path) === code) continue;
    stale.push(`assembly/${name}`);
    if (shouldWrite) writeFileSync(path, code);
  }
  return stale;
}

const isCheck = process.argv.includes('--check');
const stale = await stalePaths(!isCheck);
if (isCheck && stale.length > 0) {
  process.stderr.write(`stale generated files, run "pnpm codegen" in packages/backend-wasm: ${stale.join(', ')}\n`);
  process.exitCode = 1;
}
