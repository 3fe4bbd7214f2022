import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { memorySource } from '@winnow/bytes';
import { ArgumentError, FormatError, IoError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { counted, filler, ggufBytes } from '../test/support.js';
import {
  ggufSplitName,
  openGguf,
  openSplitGguf,
  parseGgufSplitName,
  type GgufTensorInput,
  type GgufTypedValue,
} from './index.js';
import { openGgufFile } from './index.node.js';

type Metadata = Record<string, GgufTypedValue | string>;
const uint16 = (value: number): GgufTypedValue => ({ type: 'uint16', value });
const int32 = (value: number): GgufTypedValue => ({ type: 'int32', value });
const tensor = (name: string, seed: number): GgufTensorInput => ({
  name,
  dtype: 'f32',
  shape: [4],
  data: filler(16, seed),
});

/** The parts of a model of four tensors in the format of gguf-split, with the metadata of some replaced. */
async function parts(changes: Record<number, Metadata> = {}): Promise<Map<string, Uint8Array>> {
  const tensors = [[tensor('a', 0), tensor('b', 1)], [tensor('c', 2)], [tensor('d', 3)]];
  const files = new Map<string, Uint8Array>();
  for (const [partIndex, some] of tensors.entries()) {
    const metadata: Metadata = {
      'split.no': uint16(partIndex),
      'split.count': uint16(3),
      'split.tensors.count': int32(4),
      ...(partIndex === 0 ? { 'general.architecture': 'llama' } : {}),
      ...changes[partIndex],
    };
    const name = ggufSplitName({ prefix: 'dir/m', partIndex, numParts: 3 });
    files.set(name, await ggufBytes({ metadata, tensors: some }));
  }
  return files;
}

function opener(files: Map<string, Uint8Array>): {
  open: (name: string) => Promise<ReturnType<typeof counted>>;
  opened: ReturnType<typeof counted>[];
} {
  const opened: ReturnType<typeof counted>[] = [];
  return {
    opened,
    open: (name) => {
      const bytes = files.get(name);
      if (bytes === undefined) return Promise.reject(new IoError({ source: name, message: 'no such file' }));
      const source = counted(memorySource(bytes, name));
      opened.push(source);
      return Promise.resolve(source);
    },
  };
}

const first = 'dir/m-00001-of-00003.gguf';
const second = 'dir/m-00002-of-00003.gguf';

describe('names of parts', () => {
  it.each([
    ['m-00001-of-00003.gguf', { prefix: 'm', partIndex: 0, numParts: 3 }],
    ['a/b-c.Q4_K-00012-of-00012.gguf', { prefix: 'a/b-c.Q4_K', partIndex: 11, numParts: 12 }],
    ['https://x.y/m-00001-of-99999.gguf', { prefix: 'https://x.y/m', partIndex: 0, numParts: 99_999 }],
  ])('%s', (name, split) => {
    expect(parseGgufSplitName(name)).toEqual(split);
    expect(ggufSplitName(split)).toBe(name);
  });

  it.each([
    'm.gguf',
    'm-1-of-3.gguf',
    'm-00001-of-00003.bin',
    'm-00000-of-00003.gguf',
    'm-00004-of-00003.gguf',
    'm-00001-of-00003.gguf.part',
  ])('%s is not a part', (name) => expect(parseGgufSplitName(name)).toBeUndefined());
});

describe('openSplitGguf', () => {
  it.each([first, second])('opens all parts, given %s', async (name) => {
    const { open, opened } = opener(await parts());
    const file = await openSplitGguf(name, open);
    expect(opened.map((source) => source.name)).toEqual([1, 2, 3].map((part) => `dir/m-0000${part}-of-00003.gguf`));
    expect(file.name).toBe(first);
    expect(file.metadata.getString('general.architecture')).toBe('llama');
    expect([...file.tensors.keys()]).toEqual(['a', 'b', 'c', 'd']);
    expect(file.parts.map(({ numTensors }) => numTensors)).toEqual([2, 1, 1]);
    for (const [index, { partIndex, byteOffset, read }] of [...file.tensors.values()].entries()) {
      const data = new Uint8Array(16);
      await read(data);
      expect(data).toEqual(filler(16, index));
      expect(partIndex).toBe(Math.max(0, index - 1));
      expect(byteOffset).toBeGreaterThanOrEqual(file.parts[partIndex]!.dataOffset);
    }
    await file.close();
    expect(opened.map((source) => source.numCloses)).toEqual([1, 1, 1]);
  });

  it.each<[string, Record<number, Metadata>, string, string]>([
    ['another count', { 1: { 'split.count': uint16(4) } }, 'split.count', 'expected 3 as in the file name, got 4'],
    ['another number', { 1: { 'split.no': uint16(2) } }, 'split.no', 'expected 1 as in the file name, got 2'],
    ['a count of another type', { 1: { 'split.count': 'x' } }, 'split.count', 'expected an integer, got string'],
    ['another total', { 2: { 'split.tensors.count': int32(5) } }, 'split.tensors.count', 'expected 4 as in the first'],
    [
      'a wrong total',
      {
        0: { 'split.tensors.count': int32(5) },
        1: { 'split.tensors.count': int32(5) },
        2: { 'split.tensors.count': int32(5) },
      },
      'split.tensors.count',
      'expected 4, the number of tensors in all parts, got 5',
    ],
  ])('rejects %s, and closes the opened parts', async (_, changes, key, message) => {
    const { open, opened } = opener(await parts(changes));
    const error: unknown = await openSplitGguf(first, open).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(FormatError);
    expect((error as FormatError).field).toBe(`metadata["${key}"]`);
    expect((error as FormatError).byteOffset).toBeTypeOf('number');
    expect((error as FormatError).message).toContain(message);
    expect(opened.every((source) => source.numCloses === 1)).toBe(true);
  });
});

describe('mismatched parts', () => {
  it('include a model that is not split, under the name of a part', async () => {
    const files = await parts();
    files.set(first, await ggufBytes({ tensors: [tensor('a', 0)] }));
    await expect(openSplitGguf(first, opener(files).open)).rejects.toThrow(
      `${first}: metadata["split.count"]: expected this key, but it is missing`,
    );
  });

  it('include a tensor in two parts', async () => {
    const files = await parts();
    const metadata = { 'split.no': uint16(1), 'split.count': uint16(3), 'split.tensors.count': int32(4) };
    files.set(second, await ggufBytes({ metadata, tensors: [tensor('a', 0)] }));
    await expect(openSplitGguf(first, opener(files).open)).rejects.toThrow(
      `${second}: tensors["a"]: expected unique tensor names, got a duplicate of one in part 1`,
    );
  });

  it('include more tensors than the limit in all parts', async () => {
    await expect(openSplitGguf(first, opener(await parts()).open, { limits: { maxTensors: 3 } })).rejects.toThrow(
      /expected at most 3 \(maxTensors\) in all parts, got 4/,
    );
  });

  it('include a missing part; the others are closed', async () => {
    const files = await parts();
    files.delete(second);
    const { open, opened } = opener(files);
    await expect(openSplitGguf(first, open)).rejects.toThrow(`${second}: no such file`);
    expect(opened.map((source) => source.numCloses)).toEqual([1]);
  });

  it('do not include a complete model named part 1 of 1', async () => {
    const files = new Map([['m-00001-of-00001.gguf', await ggufBytes({ tensors: [tensor('a', 0)] })]]);
    expect((await openSplitGguf('m-00001-of-00001.gguf', opener(files).open)).tensors.size).toBe(1);
  });

  it('include another name', async () => {
    await expect(openSplitGguf('m.gguf', opener(new Map()).open)).rejects.toThrow(ArgumentError);
  });
});

describe('openGguf', () => {
  it('rejects a single part, which is an incomplete model', async () => {
    await expect(openGguf(memorySource((await parts()).get(second)!))).rejects.toThrow(
      /metadata\["split.count"\]: expected a whole model, got part 2 of 3: open it with openSplitGguf/,
    );
  });
});

describe('openGgufFile', () => {
  it('opens all parts of a split model', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'winnow-split-'));
    for (const [name, bytes] of await parts()) await writeFile(join(folder, name.slice(4)), bytes);
    const file = await openGgufFile(join(folder, 'm-00003-of-00003.gguf'));
    expect(file.tensors.size).toBe(4);
    const data = new Uint8Array(16);
    await file.tensors.get('d')!.read(data);
    expect(data).toEqual(filler(16, 3));
    await file.close();
    await rm(join(folder, 'm-00002-of-00003.gguf'));
    await expect(openGgufFile(join(folder, 'm-00001-of-00003.gguf'))).rejects.toThrow(/m-00002-of-00003.gguf: no such/);
    await rm(folder, { recursive: true });
  });
});
