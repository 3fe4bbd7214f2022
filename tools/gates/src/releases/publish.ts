/**
 * Checks what npm would publish: packs the package, runs publint and attw on the archive, and looks for files that must
 * not be published.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { programOf, runProgram } from '../workspace/run.ts';
import { entriesOf, readJson, type Manifest } from '../workspace/workspace.ts';
import { listTarball } from './tarball.ts';

const here = dirname(fileURLToPath(import.meta.url));

/** Packs `folder` and passes the archive to `use`; removes it afterwards. */
export async function withArchive<T>(folder: string, use: (archive: string) => T | Promise<T>): Promise<T> {
  const target = mkdtempSync(join(tmpdir(), 'winnow-pack-'));
  try {
    const packed = runProgram('pnpm', ['pack', '--pack-destination', target], { cwd: folder });
    const name = readdirSync(target).find((file) => file.endsWith('.tgz'));
    if (packed.code !== 0 || name === undefined) throw new Error(`pnpm pack failed:\n${packed.output}`);
    return await use(join(target, name));
  } finally {
    rmSync(target, { recursive: true, force: true });
  }
}

export async function checkPublint(folder: string, archive: string): Promise<string[]> {
  const bytes = readFileSync(archive);
  const tarball = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
  const { messages } = await publint({ pack: { tarball }, strict: true });
  const manifest = readJson<Record<string, unknown>>(join(folder, 'package.json'));
  return messages
    .filter(({ type }) => type !== 'suggestion')
    .map((message) => formatMessage(message, manifest, { color: false }) ?? message.code);
}

export function checkAttw(archive: string): string[] {
  const program = programOf('@arethetypeswrong/cli', 'attw', join(here, '..', '..'));
  const outcome = runProgram(
    process.execPath,
    [program, archive, '--profile', 'esm-only', '--no-color', '--no-emoji', '--format', 'ascii'],
    { cwd: dirname(archive) },
  );
  return outcome.code === 0 ? [] : [outcome.output.trim()];
}

/** The archive contains the build, README and license, the sources of a library, but no tests. */
export function checkArchive(archive: string): string[] {
  const problems: string[] = [];
  const files = listTarball(readFileSync(archive));
  const manifest = new TextDecoder().decode(files.get('package.json') ?? new Uint8Array());
  const parsed = JSON.parse(manifest === '' ? '{}' : manifest) as Manifest;
  const programs = Object.values(parsed.bin ?? {}).map((path) => path.replace(/^\.\//, ''));
  // a package for Node alone has one entry, index.node.ts
  const isForNode = entriesOf(parsed).some(({ label, default: file }) => label === '.' && file.includes('.node.'));
  const index = isForNode ? 'index.node' : 'index';
  const library = [`dist/${index}.js`, `dist/${index}.d.ts`, `src/${index}.ts`];
  const built = programs.length > 0 ? programs : library;
  for (const wanted of ['package.json', 'README.md', 'LICENSE', ...built]) {
    if (!files.has(wanted)) problems.push(`the archive lacks ${wanted}`);
  }
  for (const name of files.keys()) {
    if (/\.test\.(ts|js|d\.ts)$|__fixtures__|(^|\/)(test|bench)\//.test(name))
      problems.push(`the archive contains ${name}`);
  }
  for (const [name, range] of Object.entries({ ...parsed.dependencies, ...parsed.peerDependencies })) {
    if (/^(workspace|catalog):/.test(range)) problems.push(`the archive depends on ${name}@${range}`);
  }
  return problems;
}
