/** Files that a process leaves behind when it is killed while it writes, and their removal. */
import { spawnSync } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sourceArguments } from '@winnow/test-utils';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { fileSink } from '../index.node.js';

const program = `
const { fileSink } = await import(${JSON.stringify(new URL('../index.node.ts', import.meta.url).href)});
const sink = await fileSink(process.argv[1]);
await sink.write(new Uint8Array(1000));
process.kill(process.pid, 'SIGKILL');`;

let folder: string;
let path: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'winnow-killed-'));
  path = join(folder, 'data.bin');
});
afterEach(() => rm(folder, { recursive: true }));

function writeAndDie(): void {
  const argv = [...sourceArguments, '--input-type=module'];
  const { signal, stderr } = spawnSync(process.execPath, [...argv, '-e', program, path], { encoding: 'utf8' });
  expect([signal, stderr]).toEqual(['SIGKILL', '']);
}

it.skipIf(process.platform === 'win32')('the part of a killed process is removed by the next sink', async () => {
  writeAndDie();
  writeAndDie(); // removes the first one's part before it dies itself
  expect(await readdir(folder)).toEqual([expect.stringMatching(/^data\.bin\.[0-9a-f]{8}-\d+-[0-9a-f]{8}\.part$/)]);
  const sink = await fileSink(path);
  await sink.write(Uint8Array.of(1, 2, 3));
  await sink.close();
  expect(await readdir(folder)).toEqual(['data.bin']);
  expect([...(await readFile(path))]).toEqual([1, 2, 3]);
});

it.skipIf(process.platform === 'win32')(
  'the part of a killed process is continued by a sink that resumes',
  async () => {
    writeAndDie();
    const sink = await fileSink(path, { resume: true, isNew: true });
    expect(sink.leftBytes).toBe(1000);
    expect([...(await sink.readLeft(998, 100))]).toEqual([0, 0]);
    await sink.write(Uint8Array.of(7), 600);
    await sink.close();
    expect(await readdir(folder)).toEqual(['data.bin']);
    expect([...(await readFile(path))].slice(598)).toEqual([0, 0, 7]);
    const second = await fileSink(path, { isNew: true });
    await expect(second.close()).rejects.toThrow('the file already exists');
    expect(await readdir(folder)).toEqual(['data.bin']);
  },
);

it('parts of others that may still be writing stay, for a day', async () => {
  const [elsewhere, old] = ['data.bin.00000000-7-0123abcd.part', 'data.bin.00000000-8-0123abcd.part'];
  const strangers = ['data.bin.part', 'data.bin.0.part', 'data.binary.00000000-7-0123abcd.part'];
  for (const name of [elsewhere, old, ...strangers]) await writeFile(join(folder, name), 'x');
  const twoDaysAgo = new Date(Date.now() - 2 * 24 * 60 * 60 * 1000);
  for (const name of [old, ...strangers]) await utimes(join(folder, name), twoDaysAgo, twoDaysAgo);
  const [first, second] = [await fileSink(path), await fileSink(path)];
  await first.write(Uint8Array.of(1));
  await second.write(Uint8Array.of(2));
  await first.close();
  await second.close();
  expect((await readdir(folder)).toSorted()).toEqual([...strangers, elsewhere, 'data.bin'].toSorted());
  expect([...(await readFile(path))]).toEqual([2]);
});
