/** State dicts that torch has saved, and broken ones. */
import { readFileSync } from 'node:fs';
import { memorySource, type ByteSource, type StoredTensor } from '@winnow/bytes';
import { decoder, FormatError, WinnowError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { openStateDict } from './index.js';

const bytesOf = (name: string): Buffer => readFileSync(new URL(`__fixtures__/${name}.pt`, import.meta.url));
const expected = JSON.parse(readFileSync(new URL('__fixtures__/expected.json', import.meta.url), 'utf8')) as Record<
  string,
  { readonly shape: readonly number[]; readonly values: readonly number[] }
>;

async function valuesOf(tensor: StoredTensor): Promise<number[]> {
  const bytes = new Uint8Array(tensor.sizeBytes);
  await tensor.read(bytes);
  const values = new Float32Array(tensor.shape.reduce((product, length) => product * length, 1));
  decoder(tensor.dtype)(bytes, 0, values, 0, values.length);
  return [...values];
}

test.each([
  ['linear', { weight: 'f16', bias: 'f16' }],
  [
    'tensors',
    {
      f32: 'f32',
      bf16: 'bf16',
      f64: 'f64',
      i64: 'i64',
      i8: 'i8',
      parameter: 'f32',
      rows: 'f32',
      scalar: 'f32',
      empty: 'f32',
    },
  ],
] as const)('%s: names, dtypes, shapes and values are those of torch', async (name, dtypes) => {
  const { tensors } = await openStateDict(memorySource(bytesOf(name), name));
  expect(Object.fromEntries([...tensors].map(([own, { dtype }]) => [own, dtype]))).toEqual(dtypes);
  for (const [own, tensor] of tensors) {
    expect(tensor.shape).toEqual(expected[own]?.shape);
    expect(await valuesOf(tensor)).toEqual(expected[own]?.values.map(Math.fround));
  }
});

test('reads parts of a tensor, and nothing outside of it', async () => {
  const { tensors } = await openStateDict(memorySource(bytesOf('tensors'), 'tensors'));
  const rows = tensors.get('rows') as StoredTensor;
  const part = new Uint8Array(4);
  await rows.read(part, { byteOffset: 4 });
  expect(new DataView(part.buffer).getFloat32(0, true)).toBe(5);
  await expect(rows.read(part, { byteOffset: rows.sizeBytes - 3 })).rejects.toMatchObject({ name: 'IoError' });
});

describe('refuses', () => {
  test.each([
    ['transposed', 'weight', 'expected a row-major tensor, got strides [1, 4]'],
    ['booleans', 'weight', 'got "torch BoolStorage"'],
    ['module', 'weight', 'expected a tensor'],
    ['legacy', 'end of the archive', 'expected a ZIP archive, as torch.save has written since PyTorch 1.6'],
    ['code', 'weight', 'expected a tensor'],
  ])('%s', async (name, field, message) => {
    const refused = openStateDict(memorySource(bytesOf(name), name));
    await expect(refused).rejects.toMatchObject({ field, message: expect.stringContaining(message) as string });
  });

  test('a tensor that begins so late in its storage that it ends behind it', async () => {
    const bytes = bytesOf('tensors');
    const at = bytes.indexOf('QK', bytes.indexOf('rows', 0, 'latin1'), 'latin1') + 2;
    expect(bytes[at]).toBeGreaterThan(0); // the offset of `rows`
    bytes[at] = 200;
    const refused = openStateDict(memorySource(bytes));
    await expect(refused).rejects.toMatchObject({
      field: 'rows',
      message: expect.stringMatching(/expected at most the \d+ bytes of its storage/) as string,
    });
  });

  test.each([
    ['a text that is as long as it says', '\x80\x02X\x05\x00\x00\x00ab', 'the end of the pickle'],
    ['an operand', '\x80\x02s.', 'got an empty stack'],
    ['a known opcode', '\x80\x02i', 'got 0x69'],
    ['a value in the memo', '\x80\x02h\x01.', 'got none at 1'],
    ['an integer of 8 bytes', '\x80\x02\x8a\x09', 'at most 8 bytes, got 9'],
    ['protocol 2', '\x80\x04', 'got 4'],
    ['a state dict', '\x80\x02K\x01.', 'expected a state dict'],
    ['names', '\x80\x02}K\x01K\x02s.', 'expected names of tensors'],
  ])('a pickle without %s', async (_, pickle, message) => {
    await expect(openStateDict(memorySource(archiveOf(pickle)))).rejects.toThrow(message);
  });

  test('values that refer to themselves many times over, at once', async () => {
    // 40 pairs of the previous pair
    const pair = '\x71\x00h\x00\x86';
    const refused = openStateDict(memorySource(archiveOf(`\x80\x02}X\x01\x00\x00\x00aN${pair.repeat(40)}s.`)));
    await expect(refused).rejects.toMatchObject({ field: 'a' });
  });
});

/** An archive with one entry, `x/data.pkl`. */
function archiveOf(pickle: string): Buffer {
  const [name, content] = [Buffer.from('x/data.pkl'), Buffer.from(pickle, 'latin1')];
  const local = Buffer.alloc(30);
  local.writeUInt32LE(0x04034b50, 0);
  local.writeUInt16LE(name.length, 26);
  const central = Buffer.alloc(46);
  central.writeUInt32LE(0x02014b50, 0);
  central.writeUInt32LE(content.length, 20);
  central.writeUInt32LE(content.length, 24);
  central.writeUInt16LE(name.length, 28);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(1, 8);
  end.writeUInt16LE(1, 10);
  end.writeUInt32LE(central.length + name.length, 12);
  end.writeUInt32LE(local.length + name.length + content.length, 16);
  return Buffer.concat([local, name, content, central, name, end]);
}

/** Opens a file and reads its tensors; any error that is not typed fails the test. */
async function attempt(bytes: Uint8Array): Promise<unknown> {
  try {
    const { tensors } = await openStateDict(memorySource(bytes));
    for (const tensor of tensors.values()) await tensor.read(new Uint8Array(tensor.sizeBytes));
    return undefined;
  } catch (error) {
    if (!WinnowError.isInstance(error)) throw error;
    return error;
  }
}

describe('broken files', () => {
  const whole = bytesOf('linear');

  test('are refused when they end early', async () => {
    for (let length = 0; length < whole.length; length++) {
      expect(await attempt(whole.subarray(0, length))).toBeInstanceOf(FormatError);
    }
  });

  test('are refused or read with any byte changed', async () => {
    const bytes = Buffer.from(whole);
    let numRefused = 0;
    for (let at = 0; at < bytes.length; at++) {
      bytes[at] = (whole[at] as number) ^ (1 << (at & 7));
      if ((await attempt(bytes)) !== undefined) numRefused++;
      bytes[at] = whole[at] as number;
    }
    expect(numRefused).toBeGreaterThan(100);
  });

  test('close their source', async () => {
    let numClosed = 0;
    const source: ByteSource = {
      ...{ name: 'zeros', sizeBytes: 30, read: async () => undefined },
      close: async () => void numClosed++,
    };
    await expect(openStateDict(source)).rejects.toThrow();
    expect(numClosed).toBe(1);
  });
});
