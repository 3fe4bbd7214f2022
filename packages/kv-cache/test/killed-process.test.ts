/** A process is killed while it writes pages: afterwards every page has its old or new contents or is reported. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sampled, sourceArguments } from '@winnow/test-utils';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openPageFrames } from '../src/index.js';
import { openPageFile } from '../src/index.node.js';

const pageBytes = 1024 * 1024;
const numPages = 6;
const pieceBytes = 32 * 1024;
/** Writes per version of all pages, without headers. */
const piecesPerVersion = (numPages * pageBytes) / pieceBytes;
const sourceUrl = (file: string): string => JSON.stringify(new URL(`../src/${file}`, import.meta.url).href);

/** Writes versions of the pages until it kills itself between two writes; prints each version that is complete. */
const program = `
const { openPageFrames } = await import(${sourceUrl('pages/frames.ts')});
const { openPageFile } = await import(${sourceUrl('pages/file.node.ts')});
const { open: openHandle } = await import('node:fs/promises');
// in small pieces: a single large write is hardly ever interrupted
let numPieces = 0;
const write = async (file, bytes, offset, length, position) => {
  const written = await file.write(bytes, offset, Math.min(length, ${pieceBytes}), position);
  if (++numPieces === Number(process.argv[2])) process.kill(process.pid, 'SIGKILL');
  return written;
};
const open = async (path, flags) => {
  const file = await openHandle(path, flags);
  return {
    read: (...values) => file.read(...values),
    write: (...values) => write(file, ...values),
    datasync: () => file.datasync(),
    stat: () => file.stat(),
    close: () => file.close(),
  };
};
const frames = await openPageFrames(await openPageFile(process.argv[1], { open }), { pageBytes: ${pageBytes}, blockSize: 2 });
const page = new Int32Array(${pageBytes / 4});
for (let version = 1; ; version++) {
  await Promise.all(
    Array.from({ length: ${numPages} }, async (_, pageId) => {
      page.fill(version * 100 + pageId);
      await frames.write(pageId, new Uint8Array(page.buffer), [2 * pageId, 2 * pageId + 1]);
      process.stdout.write(pageId + ' ' + version + '\\n');
    }),
  );
}`;

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'winnow-killed-'));
});
afterEach(() => rm(folder, { recursive: true }));

it('every page is old, new or reported', { timeout: 120_000 }, async () => {
  let numTorn = 0;
  for (const round of sampled([0, 1, 2, 3, 4], 2)) {
    const path = join(folder, `${round}.pages`);
    const argv = [
      ...sourceArguments,
      '--input-type=module',
      '-e',
      program,
      path,
      // a quarter to three quarters through the third version or later: no page of it can be complete
      String(Math.round((2.25 + round * 1.125) * piecesPerVersion)),
    ];
    const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'pipe'], cwd: import.meta.dirname });
    let output = '';
    let errors = '';
    const closed = once(child, 'close');
    child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    const [, signal] = (await closed) as [number | null, string | null];
    expect({ signal, errors }).toEqual({ signal: 'SIGKILL', errors: '' });

    const complete = new Map<number, number>();
    for (const line of output.split('\n').slice(0, -1)) {
      const [pageId, version] = line.split(' ').map(Number);
      complete.set(pageId, version);
    }
    const frames = await openPageFrames(await openPageFile(path, { keep: true }), { pageBytes, blockSize: 2 });
    const page = new Int32Array(pageBytes / 4);
    for (let pageId = 0; pageId < numPages; pageId++) {
      expect(frames.has(pageId)).toBe(true);
      await frames.read(pageId, new Uint8Array(page.buffer));
      const version = Math.floor(page[0] / 100);
      expect(page.every((value) => value === version * 100 + pageId)).toBe(true);
      // every version reported complete is there; at most the version in progress is newer
      expect(version).toBeGreaterThanOrEqual(complete.get(pageId) as number);
      expect([...(frames.positions(pageId) as Int32Array)]).toEqual([2 * pageId, 2 * pageId + 1]);
    }
    for (const { hasIntactVersion, pageId } of frames.damaged) {
      expect(pageId === undefined || hasIntactVersion).toBe(true);
    }
    numTorn += frames.damaged.length;
    await frames.close();
  }
  // the processes were killed while writing
  expect(numTorn).toBeGreaterThan(0);
});
