/** An independent reader, `@huggingface/gguf`, agrees on every file: published models and files of the writer. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { gguf, GGUFValueType } from '@huggingface/gguf';
import { dtypeInfo } from '@winnow/tensor';
import { memorySource } from '@winnow/bytes';
import { sharedDataPath } from '@winnow/test-utils';
import { describe, expect, it } from 'vitest';
import { anyMetadata, anyTensors, ggufBytes, sampleModel } from '../test/support.js';
import { openGguf, type GgufTypedValue } from './index.js';

/** A value in the oracle's representation: 64-bit integers as bigints, plain arrays, texts without a BOM. */
function oracleValue(typed: GgufTypedValue): unknown {
  if (typed.type === 'array') {
    if (typed.elementType === 'array') return typed.value.map(oracleValue);
    if (typed.elementType === 'uint64' || typed.elementType === 'int64') return typed.value.map(BigInt);
    return [...typed.value].map(withoutMark);
  }
  return typed.type === 'uint64' || typed.type === 'int64' ? BigInt(typed.value) : withoutMark(typed.value);
}

/** The oracle drops a leading byte order mark, such as the one that is a token of Llama's vocabulary. */
function withoutMark<T>(value: T): T | string {
  return typeof value === 'string' ? value.replace(/^\ufeff/, '') : value;
}

const oracleType = (type: string): number => GGUFValueType[type.toUpperCase() as keyof typeof GGUFValueType];

/** Serves `bytes` by HTTP, since the oracle leaves local files open. */
function fetchFrom(bytes: Uint8Array): typeof fetch {
  return (_, init) => {
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(new Headers(init?.headers).get('range') ?? '')!;
    const body = bytes.slice(Number(first), Number(last) + 1);
    return Promise.resolve(new Response(body, { status: 206 }));
  };
}

async function expectSame(bytes: Uint8Array): Promise<void> {
  const theirs = await gguf('http://memory/model.gguf', { fetch: fetchFrom(bytes), typedMetadata: true });
  const ours = await openGguf(memorySource(bytes));
  const { version, tensor_count: numTensors, kv_count: numPairs, ...rest } = theirs.typedMetadata;
  expect(ours.version).toBe(version.value);
  expect(BigInt(ours.tensors.size)).toBe(numTensors.value);
  expect(BigInt(ours.metadata.size)).toBe(numPairs.value);
  const expected = new Map(Object.entries(rest as Record<string, { value: unknown; type: number; subType?: number }>));
  expect([...ours.metadata.keys()].sort()).toEqual([...expected.keys()].sort());
  for (const [key, typed] of ours.metadata) {
    const other = expected.get(key)!;
    expect(oracleType(typed.type), key).toBe(other.type);
    if (typed.type === 'array') expect(oracleType(typed.elementType), key).toBe(other.subType);
    expect(oracleValue(typed), key).toEqual(other.value);
  }
  expect(
    [...ours.tensors.values()].map((tensor) => ({
      name: tensor.name,
      n_dims: tensor.shape.length,
      shape: tensor.shape.toReversed().map(BigInt),
      dtype: dtypeInfo(tensor.dtype).ggmlType,
      offset: BigInt(tensor.byteOffset - ours.dataOffset),
    })),
  ).toEqual(theirs.tensorInfos);
  expect(BigInt(ours.dataOffset)).toBe(theirs.tensorDataOffset);
}

/** Every GGUF file below a folder. */
function ggufFiles(root: string | undefined): string[] {
  if (root === undefined) return [];
  return readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.gguf'))
    .map((name) => join(root, name))
    .sort();
}

describe('@huggingface/gguf reads the same', () => {
  it('from the committed model', () => expectSame(readFileSync(new URL('__fixtures__/llama.gguf', import.meta.url))));

  it('from files of the writer', async () => expectSame(await ggufBytes(sampleModel())));

  it('from any metadata and tensors of the writer', async () => {
    // The oracle adds three keys of its own.
    const reserved = /^(version|tensor_count|kv_count|__proto__)$|^\ufeff/;
    await fc.assert(
      fc.asyncProperty(anyMetadata, anyTensors, async (metadata, tensors) => {
        fc.pre(
          ![...metadata.map(([key]) => key), ...tensors.map(({ name }) => name)].some((key) => reserved.test(key)),
        );
        await expectSame(await ggufBytes({ metadata, tensors }));
      }),
      { numRuns: 200 },
    );
  });
});

const folders = { models: 'real models', tokenizers: 'vocabularies', 'goldens/arch': 'one model per architecture' };
for (const [name, what] of Object.entries(folders)) {
  const root = sharedDataPath('data', ...name.split('/'));
  const files = ggufFiles(root);
  describe.skipIf(root === undefined)(`${what} (skipped without ../shared/data/${name})`, () => {
    it('exist', () => expect(files.length).toBeGreaterThan(3));
    it.each(files.map((path) => [path.slice(root!.length + 1), path]))('%s', (_, path) =>
      expectSame(readFileSync(path)),
    );
  });
}
