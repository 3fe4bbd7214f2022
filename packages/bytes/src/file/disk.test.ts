/** Files as sources and sinks under I/O errors. */
import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, open, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { IoError, ReleasedError } from '@winnow/tensor';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { memorySink, readBytes } from '../index.js';
import { fileSink, fileSource, makeFolder } from '../index.node.js';

let folder: string;
let path: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'winnow-file-'));
  path = join(folder, 'data.bin');
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rm(folder, { recursive: true });
});

/** The class of file handles, which Node does not export. */
async function fileHandlePrototype(): Promise<Awaited<ReturnType<typeof open>>> {
  const handle = await open(folder, 'r');
  await handle.close();
  return Object.getPrototypeOf(handle) as typeof handle;
}
const systemError = (code: string): Error => Object.assign(new Error(`${code}: from the system`), { code });
const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);

describe('fileSource', () => {
  it('errors name the path and the reason', async () => {
    const missing = join(folder, 'missing');
    await expect(fileSource(missing)).rejects.toThrow(`${missing}: no such file or folder (ENOENT)`);
    await expect(fileSource(missing)).rejects.toThrow(IoError);
    await expect(fileSource(folder)).rejects.toThrow(`${folder}: is a folder, expected a file`);
    await expect(fileSource(join(folder, 'a\0b'))).rejects.toThrow(IoError);
    await writeFile(path, 'x');
    await expect(fileSource(join(path, 'below'))).rejects.toThrow(/ENOTDIR/);
  });

  it.skipIf(process.platform === 'win32')('rejects a device', async () => {
    await expect(fileSource('/dev/null')).rejects.toThrow('/dev/null: is not a regular file');
  });

  it.skipIf(process.platform === 'win32' || process.getuid?.() === 0)(
    'reports a file that may not be read (skipped for root, who may read everything)',
    async () => {
      await writeFile(path, 'x');
      await chmod(path, 0);
      await expect(fileSource(path)).rejects.toThrow(`${path}: permission denied (EACCES)`);
    },
  );

  it('continues after short reads', async () => {
    await writeFile(path, bytes(1, 2, 3, 4, 5, 6, 7));
    const source = await fileSource(path);
    const prototype = await fileHandlePrototype();
    const read = prototype.read as (...args: unknown[]) => unknown;
    const positions: unknown[] = [];
    vi.spyOn(prototype, 'read').mockImplementation(function (this: typeof prototype, ...args: unknown[]) {
      const [target, offset, length, position] = args as [Uint8Array, number, number, number];
      positions.push(position);
      return read.call(this, target, offset, Math.min(length, 3), position) as never;
    } as never);
    expect(await readBytes(source)).toEqual(bytes(1, 2, 3, 4, 5, 6, 7));
    expect(positions).toEqual([0, 3, 6]);
    await source.close();
  });

  it('reports a file that was truncated', async () => {
    await writeFile(path, new Uint8Array(100));
    const source = await fileSource(path);
    await truncate(path, 40);
    await expect(source.read(10, new Uint8Array(50))).rejects.toThrow(
      `${path} at byte 40: unexpected end, expected 100 bytes, got 40`,
    );
    await source.close();
  });

  it('reports a failing disk', async () => {
    await writeFile(path, new Uint8Array(100));
    const source = await fileSource(path);
    vi.spyOn(await fileHandlePrototype(), 'read').mockRejectedValueOnce(systemError('EIO'));
    await expect(source.read(10, new Uint8Array(50))).rejects.toThrow(`${path} at byte 10: EIO: from the system (EIO)`);
    await source.close();
  });
});

describe.each([
  ['fileSink', () => fileSink(path), () => readFile(path)],
  ['memorySink', () => memorySink(), undefined],
] as const)('%s', (_, create, readBack) => {
  it('appends, writes at positions, and fills gaps with zeros', async () => {
    const sink = await create();
    await sink.write(bytes(1, 2));
    await Promise.all([sink.write(bytes(3, 4, 5)), sink.write(bytes(6))]);
    expect(sink.sizeBytes).toBe(6);
    await sink.write(bytes(9), 1);
    await sink.write(bytes(8), 8);
    await sink.write(new Uint8Array(0), 10);
    expect(sink.sizeBytes).toBe(10);
    await sink.close();
    await sink.close();
    const written = 'toBytes' in sink ? sink.toBytes() : new Uint8Array(await readBack!());
    expect(written).toEqual(bytes(1, 9, 3, 4, 5, 6, 0, 0, 8, 0));
    await expect(sink.write(bytes(1))).rejects.toThrow(ReleasedError);
    await sink.abort();
  });

  it('rejects use after abort', async () => {
    const sink = await create();
    await sink.write(bytes(1));
    await sink.abort();
    await sink.abort();
    await expect(sink.write(bytes(1))).rejects.toThrow(ReleasedError);
    await expect(sink.close()).rejects.toThrow(ReleasedError);
    expect(await readdir(folder)).toEqual([]);
  });
});

describe('fileSink', () => {
  it('leaves the old file until close', async () => {
    await writeFile(path, 'old');
    const sink = await fileSink(path);
    await sink.write(bytes(1));
    expect(await readFile(path, 'utf8')).toBe('old');
    expect(await readdir(folder)).toHaveLength(2);
    await sink.close();
    expect(new Uint8Array(await readFile(path))).toEqual(bytes(1));
    expect(await readdir(folder)).toEqual(['data.bin']);
  });

  it('keeps the old file on abort', async () => {
    await writeFile(path, 'old');
    const sink = await fileSink(path);
    await sink.write(bytes(1));
    await sink.abort();
    expect(await readFile(path, 'utf8')).toBe('old');
    expect(await readdir(folder)).toEqual(['data.bin']);
  });

  it('continues after short writes', async () => {
    const prototype = await fileHandlePrototype();
    const write = prototype.write as (...args: unknown[]) => unknown;
    vi.spyOn(prototype, 'write').mockImplementation(function (this: typeof prototype, ...args: unknown[]) {
      const [source, offset, length, position] = args as [Uint8Array, number, number, number];
      return write.call(this, source, offset, Math.min(length, 2), position) as never;
    } as never);
    const sink = await fileSink(path);
    await sink.write(bytes(1, 2, 3, 4, 5));
    await sink.close();
    expect(new Uint8Array(await readFile(path))).toEqual(bytes(1, 2, 3, 4, 5));
  });
});

describe('failures of fileSink', () => {
  it.each(['write', 'sync', 'truncate'] as const)('remove its file when %s fails', async (method) => {
    await writeFile(path, 'old');
    const sink = await fileSink(path);
    vi.spyOn(await fileHandlePrototype(), method).mockRejectedValueOnce(systemError('ENOSPC'));
    const writing = async (): Promise<void> => {
      await sink.write(bytes(1, 2, 3));
      await sink.close();
    };
    await expect(writing()).rejects.toThrow(/data\.bin.*no space left on the device \(ENOSPC\)/);
    expect(await readdir(folder)).toEqual(['data.bin']);
    expect(await readFile(path, 'utf8')).toBe('old');
    await expect(sink.write(bytes(1))).rejects.toThrow(ReleasedError);
  });

  it('remove its file when the rename fails', async () => {
    const sink = await fileSink(path);
    await sink.write(bytes(1));
    await mkdir(path);
    await expect(sink.close()).rejects.toThrow(IoError);
    expect(await readdir(folder)).toEqual(['data.bin']);
  });

  it('include a folder and a missing folder, at once', async () => {
    await expect(fileSink(folder)).rejects.toThrow(`${folder}: is a folder`);
    await expect(fileSink(join(folder, 'no', 'file'))).rejects.toThrow(/ENOENT/);
  });
});

describe.skipIf(process.platform === 'win32')('special files', () => {
  it('are never replaced', async () => {
    const pipe = join(folder, 'pipe');
    execFileSync('mkfifo', [pipe]);
    await expect(fileSink(pipe)).rejects.toThrow(`${pipe}: is not a regular file`);
    expect((await stat(pipe)).isFIFO()).toBe(true);
    expect(await readdir(folder)).toEqual(['pipe']);
  });

  it('permissions are those of the options', async () => {
    const sink = await fileSink(path, { mode: 0o600 });
    await sink.close();
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  });
});

describe('makeFolder', () => {
  it('creates missing folders only', async () => {
    const deep = join(folder, 'a', 'b', 'c');
    await makeFolder(deep);
    expect(await readdir(join(folder, 'a', 'b'))).toEqual(['c']);
    await makeFolder(deep);
    await makeFolder(folder);
    const leaves = Array.from({ length: 40 }, (_, index) => String(index));
    await Promise.all(leaves.map((leaf) => makeFolder(join(folder, 'd', 'e', 'f', leaf))));
    expect((await readdir(join(folder, 'd', 'e', 'f'))).toSorted()).toEqual(leaves.toSorted());
  });

  it('rejects paths that contain a file', async () => {
    await writeFile(path, 'x');
    await expect(makeFolder(path)).rejects.toThrow(`${path}: exists and is not a folder`);
    await expect(makeFolder(join(path, 'below'))).rejects.toThrow(IoError);
    await expect(makeFolder(join(path, 'far', 'below'))).rejects.toThrow(IoError);
  });

  it.runIf(process.platform === 'linux')('fails where a folder cannot be created', async () => {
    await expect(makeFolder('/proc/winnow')).rejects.toThrow('/proc/winnow: no such file or folder (ENOENT)');
    await expect(makeFolder('/proc/winnow/far/below')).rejects.toThrow(IoError);
  });
});
