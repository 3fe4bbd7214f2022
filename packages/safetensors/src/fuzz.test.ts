import { readFile } from 'node:fs/promises';
import { memorySource, type ByteSource } from '@winnow/bytes';
import { FormatError } from '@winnow/tensor';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  MAX_DIMS,
  MAX_HEADER_BYTES,
  MAX_METADATA_ENTRIES,
  MAX_TENSORS,
  openSafetensors,
  type SafetensorsFile,
} from './index.js';

const folder = new URL('__fixtures__/fuzz/', import.meta.url);
const manifest = JSON.parse(await readFile(new URL('manifest.json', folder), 'utf8')) as {
  file: string;
  expected: string;
  upstream: string;
}[];
const base = await readFile(new URL('__fixtures__/upstream-all-dtypes.safetensors', import.meta.url));

/** Opens a file and returns the outcome. Any error other than FormatError fails the test. */
async function attempt(source: ByteSource): Promise<SafetensorsFile | FormatError> {
  try {
    return await openSafetensors(source);
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    expect(error.source).toBe(source.name);
    expect(error.byteOffset).toBeTypeOf('number');
    expect(error.byteOffset).toBeLessThanOrEqual(source.sizeBytes);
    expect(error.field).not.toBe('');
    expect(error.message.length).toBeLessThan(4000);
    return error;
  }
}

/** Checks an opened file: tensors lie inside the file, contiguously, with the bytes of their shapes. */
function checkOpened(file: SafetensorsFile, sizeBytes: number): void {
  let total = 0;
  for (const tensor of [...file.tensors.values(), ...file.unsupported.values()]) total += tensor.sizeBytes;
  expect(total).toBeLessThanOrEqual(sizeBytes - 8);
}

describe('the saved corpus', () => {
  it.each(manifest)('$file: $expected', async ({ file, expected, upstream }) => {
    const bytes = await readFile(new URL(file, folder));
    const result = await attempt(memorySource(bytes, file));
    if (expected === 'ok') {
      expect(result).not.toBeInstanceOf(FormatError);
      expect(upstream).toBe('ok');
    } else {
      expect(result).toBeInstanceOf(FormatError);
      const { field } = result as FormatError;
      expect(field === expected || field.startsWith(`${expected}.`) || field.startsWith(`${expected}:`)).toBe(true);
    }
  });

  it('points at the invalid value', async () => {
    const offsetOf = async (name: string, text: string): Promise<[number | undefined, number]> => {
      const bytes = await readFile(new URL(`${name}.bin`, folder));
      const error = (await attempt(memorySource(bytes))) as FormatError;
      return [error.byteOffset, bytes.indexOf(text)];
    };
    for (const [name, text] of [
      ['dtype-unknown', '"F33"'],
      ['shape-product-overflow', '[4294967296'],
      ['offsets-reversed', '[16,0]'],
      ['gap-between', '[17,20]'],
      ['overlap-one-byte', '[15,19]'],
      ['second-beyond-file', '[16,19]'],
      ['shape-fraction', '2.0'],
      ['duplicate-tensor-escaped', '"\\u0061"'],
      ['metadata-number', '1}'],
    ] as const) {
      const [found, expected] = await offsetOf(name, text);
      expect(`${name} ${found}`).toBe(`${name} ${expected}`);
    }
  });
});

describe('mutations of a good file', () => {
  it('rejects it truncated at any byte', async () => {
    for (let length = 0; length < base.length; length++) {
      expect(await attempt(memorySource(base.subarray(0, length)))).toBeInstanceOf(FormatError);
    }
  });

  it('rejects it with bytes appended', async () => {
    for (const extra of [1, 7, 8, 1000]) {
      expect(await attempt(memorySource(Buffer.concat([base, Buffer.alloc(extra)])))).toBeInstanceOf(FormatError);
    }
  });

  it('rejects or parses it with any single bit of the header flipped', async () => {
    const headerEnd = 8 + Number(base.readBigUInt64LE(0));
    const bytes = Buffer.from(base);
    let numRefused = 0;
    for (let bit = 0; bit < headerEnd * 8; bit++) {
      const at = bit >> 3;
      bytes[at] = (bytes[at] as number) ^ (1 << (bit & 7));
      const result = await attempt(memorySource(bytes));
      if (result instanceof FormatError) numRefused++;
      else checkOpened(result, bytes.length);
      bytes[at] = base[at] as number;
    }
    expect(numRefused).toBeGreaterThan(headerEnd * 4); // most of a header is structure
  });
});

describe('random bytes', () => {
  it('replaced, removed, inserted and swapped are rejected or parsed', async () => {
    const edit = fc.record({
      at: fc.nat(base.length - 1),
      kind: fc.constantFrom('replace', 'remove', 'insert', 'copy'),
      from: fc.nat(base.length - 1),
      bytes: fc.oneof(
        fc.uint8Array({ minLength: 1, maxLength: 8 }),
        fc
          .constantFrom('{', '}', '"', '[', ']', ',', ':', '\\', '0', '9', '-', 'null', '[[', '18446744073709551615')
          .map((text) => Buffer.from(text)),
      ),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(edit, { minLength: 1, maxLength: 6 }), async (edits) => {
        let bytes = Buffer.from(base);
        for (const { at, kind, from, bytes: piece } of edits) {
          const head = bytes.subarray(0, at);
          if (kind === 'replace') bytes = Buffer.concat([head, piece, bytes.subarray(at + piece.length)]);
          else if (kind === 'remove') bytes = Buffer.concat([head, bytes.subarray(at + piece.length)]);
          else if (kind === 'insert') bytes = Buffer.concat([head, piece, bytes.subarray(at)]);
          else bytes = Buffer.concat([head, bytes.subarray(from, from + piece.length), bytes.subarray(at)]);
        }
        const result = await attempt(memorySource(bytes));
        if (!(result instanceof FormatError)) checkOpened(result, bytes.length);
      }),
      { numRuns: 3000, seed: 7 },
    );
  });

  it('after a valid header length are rejected or parsed', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.uint8Array({ maxLength: 64 }),
          fc.json().map((text) => Buffer.from(text)),
        ),
        async (header) => {
          const bytes = Buffer.alloc(8 + header.length);
          bytes.writeBigUInt64LE(BigInt(header.length));
          bytes.set(header, 8);
          const result = await attempt(memorySource(bytes));
          if (!(result instanceof FormatError)) checkOpened(result, bytes.length);
        },
      ),
      { numRuns: 2000, seed: 8 },
    );
  });
});

/** A source of a claimed size that counts requested bytes. */
function claiming(sizeBytes: number, start: Uint8Array): ByteSource & { askedBytes: number } {
  return {
    name: 'claim',
    sizeBytes,
    askedBytes: 0,
    async read(byteOffset, target) {
      this.askedBytes += target.byteLength;
      target.set(start.subarray(byteOffset, byteOffset + target.byteLength));
    },
    async close() {},
  };
}

const withHeader = (text: string, dataBytes = 0): ByteSource => {
  const bytes = Buffer.alloc(8 + text.length + dataBytes);
  bytes.writeBigUInt64LE(BigInt(text.length));
  bytes.write(text, 8, 'latin1');
  return memorySource(bytes);
};

describe('files that claim to be large', () => {
  it.each([100_000_001n, 2n ** 40n, 2n ** 63n, 2n ** 64n - 1n])(
    'reads 8 bytes of a header of %d bytes',
    async (length) => {
      const start = new Uint8Array(16);
      new DataView(start.buffer).setBigUint64(0, length, true);
      const source = claiming(2 ** 52, start);
      expect(await attempt(source)).toBeInstanceOf(FormatError);
      expect(source.askedBytes).toBe(8);
      expect(MAX_HEADER_BYTES).toBe(100_000_000);
    },
  );

  it('stops at the limits for tensors, dimensions and metadata', async () => {
    const numbers = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
    const tensors = numbers(MAX_TENSORS + 1).map((i) => `"${i}":{"dtype":"I8","shape":[0],"data_offsets":[0,0]}`);
    expect(await attempt(withHeader(`{${tensors.join(',')}}`))).toMatchObject({ message: /more than 500000 tensors/ });
    const metadata = numbers(MAX_METADATA_ENTRIES + 1).map((i) => `"${i}":""`);
    expect(await attempt(withHeader(`{"__metadata__":{${metadata.join(',')}}}`))).toMatchObject({
      field: '__metadata__',
    });
    const dims = '1,'.repeat(5_000_000);
    expect(await attempt(withHeader(`{"a":{"shape":[${dims}1],"dtype":"I8","data_offsets":[0,1]}}`, 1))).toMatchObject({
      message: new RegExp(`more than ${MAX_DIMS} numbers`),
    });
  });

  it('handles nesting, long names and long strings', async () => {
    const deep = '['.repeat(20_000_000);
    expect(await attempt(withHeader(`{"a":{"x":${deep}`))).toMatchObject({ message: /nested deeper than 64 levels/ });
    const objects = '{"a":'.repeat(1_000_000);
    expect(await attempt(withHeader(objects))).toBeInstanceOf(FormatError);
    expect(await attempt(withHeader(`{"${'n'.repeat(20_000_000)}":1}`))).toBeInstanceOf(FormatError);
    expect(await attempt(withHeader(`{"${'\\u0041'.repeat(1_000_000)}":1}`))).toBeInstanceOf(FormatError);
    expect(await attempt(withHeader(`{"a":${'9'.repeat(1_000_000)}}`))).toBeInstanceOf(FormatError);
  });

  it('opens the number of tensors of the largest checkpoints', async () => {
    const count = 100_000;
    const entries = Array.from(
      { length: count },
      (_, i) => `"model.layers.${i}.weight":{"dtype":"I8","shape":[1],"data_offsets":[${count - 1 - i},${count - i}]}`,
    );
    const file = await openSafetensors(withHeader(`{${entries.join(',')}}`, count));
    expect(file.tensors.size).toBe(count);
    expect(file.tensors.keys().next().value).toBe(`model.layers.${count - 1}.weight`);
  });
});
