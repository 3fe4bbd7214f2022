/** A conversion is killed between its renames: what remains is the old model, the new one or none. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import filePromises from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { sourceArguments, testCoverage } from '@winnow/test-utils';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { convertFiles, type ConvertFilesOptions } from '../src/index.node.js';

const demo = fileURLToPath(new URL('../../demo-model/src/model', import.meta.url));
/** Converts, and kills itself in place of the rename of the given number. */
const program = `
import { syncBuiltinESMExports } from 'node:module';
import files from 'node:fs/promises';
const [source, destination, options, last] = process.argv.slice(1);
const { rename } = files;
let numRenames = 0;
files.rename = (...paths) => {
  if (++numRenames === Number(last)) process.kill(process.pid, 'SIGKILL');
  return rename(...paths);
};
syncBuiltinESMExports();
const { convertFiles } = await import(${JSON.stringify(new URL('../src/index.node.ts', import.meta.url).href)});
await convertFiles(source, destination, JSON.parse(options));`;

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'winnow-killed-'))));
afterEach(() => rmSync(folder, { recursive: true }));

function convertAndDie(source: string, destination: string, options: ConvertFilesOptions, last: number): void {
  const argv = [...sourceArguments, '--input-type=module'];
  const values = [source, destination, JSON.stringify(options), String(last)];
  const child = spawnSync(process.execPath, [...argv, '-e', program, ...values], { encoding: 'utf8' });
  expect(child.stderr).toBe('');
  expect(child.signal).toBe('SIGKILL');
}

/** Renames that never end. They keep their callers alive, whose open files the garbage collector must not close. */
const endless: Promise<never>[] = [];

/**
 * Converts in this process, and stops forever at the rename of the given number: no code runs after it, as in a process
 * that dies. Under the name of a dead process, the remaining files look abandoned.
 */
async function convertAndStop(
  ...[source, destination, options, last]: Parameters<typeof convertAndDie>
): Promise<void> {
  const { rename } = filePromises;
  let numRenames = 0;
  const own = process.pid;
  Object.defineProperty(process, 'pid', { value: spawnSync(process.execPath, ['--version']).pid });
  await new Promise<void>((resolve, reject) => {
    vi.spyOn(filePromises, 'rename').mockImplementation((...paths) => {
      if (++numRenames !== last) return rename(...paths);
      resolve();
      endless.push(new Promise<never>(() => undefined));
      return endless.at(-1) as Promise<never>;
    });
    syncBuiltinESMExports();
    convertFiles(source, destination, options).then(() => reject(new Error('too few renames')), reject);
  });
  Object.defineProperty(process, 'pid', { value: own });
  vi.mocked(filePromises.rename).mockRestore();
  syncBuiltinESMExports();
}

/** Converts in this process. @returns the number of renames */
async function convertAndCount(source: string, destination: string, options: ConvertFilesOptions): Promise<number> {
  const rename = vi.spyOn(filePromises, 'rename');
  syncBuiltinESMExports();
  try {
    await convertFiles(source, destination, options);
    return rename.mock.calls.length;
  } finally {
    rename.mockRestore();
    syncBuiltinESMExports();
  }
}

/** One value for the files of a model. */
function stateOf(path: string, pattern: RegExp): string {
  if (!existsSync(path)) return 'none';
  const hash = createHash('sha256');
  const names = readdirSync(path).filter((name) => pattern.test(name));
  for (const name of names.toSorted()) hash.update(`${name}\n`).update(readFileSync(join(path, name)));
  return names.length === 0 ? 'none' : hash.digest('hex');
}

describe.skipIf(process.platform === 'win32')('overwriting', () => {
  test('a folder', { timeout: 120_000 }, async () => {
    const [source, place] = [join(folder, 'demo.gguf'), join(folder, 'place')];
    await convertFiles(demo, source);
    const older = { type: 'f16', splitSizeBytes: 1_000_000 } as const;
    const newer = { type: 'bf16', splitSizeBytes: 1_000_000, overwrite: true } as const;
    const state = (): string => stateOf(place, /safetensors|^config/);
    await convertFiles(source, place, older);
    const before = state();
    mkdirSync(join(place, 'notes'));
    writeFileSync(join(place, 'notes', 'mine.txt'), 'mine');
    const copy = join(folder, 'copy');
    const numRenames = (await convertAndCount(source, copy, newer)) + 2; // a folder is replaced
    const after = stateOf(copy, /safetensors|^config/);
    expect(after).not.toBe(before);

    // the other test kills a process
    const convertAndEnd = testCoverage === 'full' ? convertAndDie : convertAndStop;
    const seen = new Set<string>();
    expect(numRenames).toBeGreaterThan(4);
    for (const last of [2, numRenames - 2, numRenames - 1, numRenames]) {
      await convertAndEnd(source, place, newer, last);
      seen.add(state());
      await expect(convertFiles(join(folder, 'missing'), place, newer)).rejects.toThrow(/no such file/);
    }
    expect([...seen].filter((one) => one !== before && one !== after)).toEqual(['none']);
    await convertFiles(source, place, newer);
    expect(state()).toBe(after);
    expect(readFileSync(join(place, 'notes', 'mine.txt'), 'utf8')).toBe('mine');
    expect(readdirSync(folder).toSorted()).toEqual(['copy', 'demo.gguf', 'place']);
  });

  test('the parts of a GGUF file', { timeout: 120_000 }, async () => {
    const path = join(folder, 'model.gguf');
    const options = { splitSizeBytes: 1_000_000, overwrite: true } as const;
    const { files } = await convertFiles(demo, path, { ...options, type: 'f16' });
    expect(files.length).toBeGreaterThan(2);
    const first = join(folder, files[0] as string);
    convertAndDie(demo, path, { ...options, type: 'bf16' }, 2);
    expect(existsSync(first)).toBe(false); // nothing opens the others without it
    await convertFiles(demo, path, { ...options, type: 'bf16' });
    expect(readdirSync(folder).toSorted()).toEqual(files.toSorted());
  });
});

test('files of an earlier model are removed, and other files are kept', async () => {
  const [source, place] = [join(folder, 'demo.gguf'), join(folder, 'place')];
  await convertFiles(demo, source);
  await convertFiles(source, place, { splitSizeBytes: 1_000_000 });
  writeFileSync(join(place, 'README.md'), 'mine');
  const { files } = await convertFiles(source, place, { overwrite: true });
  expect(readdirSync(place).toSorted()).toEqual([...files, 'README.md'].toSorted());
  expect(readFileSync(join(place, 'README.md'), 'utf8')).toBe('mine');
});
