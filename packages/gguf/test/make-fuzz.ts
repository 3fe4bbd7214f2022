/**
 * Makes the saved fuzz corpus: broken GGUF files, each with the field of its expected error. It assembles bytes without the
 * reader and the writer, so that it is independent of both. `node test/make-fuzz.ts` writes `src/__fixtures__/fuzz`.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface FuzzCase {
  readonly file: string;
  /** Expected `FormatError.field`. */
  readonly field: string;
  /** Expected `FormatError.byteOffset`. */
  readonly byteOffset: number;
  readonly bytes: Uint8Array;
}

type Piece = readonly number[];

const encoder = new TextEncoder();
const raw = (text: string): number[] => [...encoder.encode(text)];
const u32 = (value: number): number[] => [...new Uint8Array(Uint32Array.of(value).buffer)];
const u64 = (value: bigint | number): number[] => [...new Uint8Array(BigUint64Array.of(BigInt(value)).buffer)];
const str = (text: string): number[] => [...u64(encoder.encode(text).byteLength), ...raw(text)];

const types = { uint8: 0, uint32: 4, bool: 7, string: 8, array: 9, uint64: 10 } as const;
const pair = (key: string, type: keyof typeof types, ...value: Piece[]): Piece => [
  ...str(key),
  ...u32(types[type]),
  ...value.flat(),
];
const list = (type: keyof typeof types, length: bigint | number, ...elements: Piece[]): Piece => [
  ...u32(types[type]),
  ...u64(length),
  ...elements.flat(),
];
const info = (name: string, dims: readonly (bigint | number)[], type: number, offset: bigint | number): Piece => [
  ...str(name),
  ...u32(dims.length),
  ...dims.flatMap(u64),
  ...u32(type),
  ...u64(offset),
];

interface Model {
  magic?: string;
  version?: number;
  numTensors?: bigint | number;
  numPairs?: bigint | number;
  pairs?: Piece[];
  infos?: Piece[];
  dataBytes?: number;
  alignment?: number;
  cut?: number;
}

function model(options: Model): Uint8Array {
  const { pairs = [], infos = [], dataBytes = 0, alignment = 32 } = options;
  const header = [
    ...raw(options.magic ?? 'GGUF'),
    ...u32(options.version ?? 3),
    ...u64(options.numTensors ?? infos.length),
    ...u64(options.numPairs ?? pairs.length),
    ...pairs.flat(),
    ...infos.flat(),
  ];
  const padding = dataBytes === 0 ? 0 : (alignment - (header.length % alignment)) % alignment;
  const all = [...header, ...new Array<number>(padding + dataBytes).fill(0)];
  return Uint8Array.from(options.cut === undefined ? all : all.slice(0, options.cut));
}

const max64 = 2n ** 64n - 1n;
/** Offset of the first pair, and of its value after the key `a`. */
const pairs = 24;
const valueA = pairs + 8 + 1 + 4;
const F32 = 0;
const Q8_0 = 8;
/** Offsets of the fields of the first tensor, named `t`, in a file without pairs. */
const numDims = 24 + 9;
const dims = numDims + 4;
/** Nested arrays: `depth` headers of arrays with one element each. */
const nest = (depth: number): Piece => Array.from({ length: depth }, () => list('array', 1)).flat();

const cases: readonly (readonly [file: string, field: string, byteOffset: number, bytes: Uint8Array])[] = [
  ['empty', 'magic', 0, new Uint8Array(0)],
  ['magic-cut', 'magic', 0, model({ cut: 3 })],
  ['magic-other', 'magic', 0, model({ magic: 'GGUX' })],
  ['magic-old-ggml', 'magic', 0, model({ magic: 'lmgg' })],
  ['version-cut', 'version', 4, model({ cut: 6 })],
  ['version-0', 'version', 4, model({ version: 0 })],
  ['version-1', 'version', 4, model({ version: 1 })],
  ['version-4', 'version', 4, model({ version: 4 })],
  ['version-big-endian', 'version', 4, model({ version: 0x0300_0000 })],
  ['num-tensors-cut', 'numTensors', 8, model({ cut: 12 })],
  ['num-tensors-huge', 'numTensors', 8, model({ numTensors: max64 })],
  ['num-tensors-negative', 'numTensors', 8, model({ numTensors: 2n ** 63n })],
  ['num-tensors-limit', 'numTensors', 8, model({ numTensors: 131_073 })],
  ['num-tensors-lie', 'numTensors', 8, model({ numTensors: 3, infos: [info('t', [], F32, 0)] })],
  ['num-pairs-huge', 'numMetadataPairs', 16, model({ numPairs: max64 })],
  ['num-pairs-limit', 'numMetadataPairs', 16, model({ numPairs: 65_537 })],
  ['num-pairs-lie', 'numMetadataPairs', 16, model({ numPairs: 4, pairs: [pair('a', 'bool', [1])] })],
  ['pair-missing', 'metadata[1].key', 68, model({ numPairs: 2, pairs: [pair('a', 'string', str('x'.repeat(23)))] })],
  ['key-empty', 'metadata[0].key', pairs, model({ pairs: [pair('', 'uint64', u64(1))] })],
  ['key-huge', 'metadata[0].key', pairs, model({ pairs: [[...u64(max64), ...raw('aaaaaaaaaaaa')]] })],
  ['key-limit', 'metadata[0].key', pairs, model({ pairs: [[...u64(65_536), ...raw('aaaaaaaaaaaa')]] })],
  ['key-past-end', 'metadata[0].key', pairs, model({ pairs: [[...u64(100), ...raw('aaaaaaaaaaaa')]] })],
  ['key-not-utf8', 'metadata[0].key', pairs, model({ pairs: [[...u64(2), 0xc3, 0x28, ...u32(4), ...u32(1)]] })],
  ['key-twice', 'metadata["a"]', 38, model({ pairs: [pair('a', 'bool', [1]), pair('a', 'bool', [1])] })],
  ['type-unknown', 'metadata["a"].type', 33, model({ pairs: [[...str('a'), ...u32(13), 0, 0]] })],
  ['bool-2', 'metadata["a"]', valueA, model({ pairs: [pair('a', 'bool', [2])] })],
  ['value-cut', 'metadata["a"]', valueA, model({ pairs: [pair('a', 'uint64', [1, 2, 3])] })],
  ['string-huge', 'metadata["a"]', valueA, model({ pairs: [pair('a', 'string', u64(max64))] })],
  ['string-limit', 'metadata["a"]', valueA, model({ pairs: [pair('a', 'string', u64(2n ** 40n))] })],
  ['string-past-end', 'metadata["a"]', valueA, model({ pairs: [pair('a', 'string', u64(5), raw('abcd'))] })],
  ['string-not-utf8', 'metadata["a"]', valueA, model({ pairs: [pair('a', 'string', u64(1), [0xff])] })],
  ['array-type-unknown', 'metadata["a"].elementType', valueA, model({ pairs: [pair('a', 'array', u32(99), u64(0))] })],
  ['array-huge', 'metadata["a"].length', valueA + 4, model({ pairs: [pair('a', 'array', list('uint8', max64))] })],
  ['array-limit', 'metadata["a"].length', valueA + 4, model({ pairs: [pair('a', 'array', list('uint8', 2n ** 32n))] })],
  ['array-lie', 'metadata["a"].length', valueA + 4, model({ pairs: [pair('a', 'array', list('uint32', 2, u32(1)))] })],
  [
    'array-of-strings-lie',
    'metadata["a"].length',
    valueA + 4,
    model({ pairs: [pair('a', 'array', list('string', 1000, str('x')))] }),
  ],
  [
    'array-string-past-end',
    'metadata["a"]',
    valueA + 12 + 9,
    model({ pairs: [pair('a', 'array', list('string', 2, str('x'), u64(4)))] }),
  ],
  [
    'array-too-deep',
    'metadata["a"][0][0][0]',
    valueA + 3 * 12 + 4,
    model({ pairs: [pair('a', 'array', nest(5), list('uint8', 1, [0]))] }),
  ],
  [
    'array-wide',
    'metadata["a"].length',
    valueA + 4,
    model({ pairs: [pair('a', 'array', list('array', 100_000, list('uint8', 0)))] }),
  ],
  ['alignment-0', 'metadata["general.alignment"]', 53, model({ pairs: [pair('general.alignment', 'uint32', u32(0))] })],
  [
    'alignment-24',
    'metadata["general.alignment"]',
    53,
    model({ pairs: [pair('general.alignment', 'uint32', u32(24))] }),
  ],
  [
    'alignment-type',
    'metadata["general.alignment"]',
    53,
    model({ pairs: [pair('general.alignment', 'uint64', u64(32))] }),
  ],
  [
    'alignment-past-end',
    'tensors["t"].offset',
    57 + 9 + 4 + 4,
    model({
      pairs: [pair('general.alignment', 'uint32', u32(2 ** 31))],
      infos: [info('t', [], F32, 0)],
      dataBytes: 32,
    }),
  ],
  ['tensor-name-empty', 'tensors[0].name', 24, model({ infos: [info('', [1], F32, 0)], dataBytes: 4 })],
  ['tensor-name-long', 'tensors[0].name', 24, model({ infos: [info('t'.repeat(1025), [1], F32, 0)], dataBytes: 4 })],
  ['tensor-name-huge', 'tensors[0].name', 24, model({ infos: [[...u64(max64), ...u64(0), ...u64(0), 0]] })],
  [
    'tensor-twice',
    'tensors["t"]',
    57,
    model({ infos: [info('t', [1], F32, 0), info('t', [1], F32, 32)], dataBytes: 64 }),
  ],
  ['dims-5', 'tensors["t"].numDims', numDims, model({ infos: [info('t', [1, 1, 1, 1, 1], F32, 0)], dataBytes: 4 })],
  [
    'dims-huge-count',
    'tensors["t"].numDims',
    numDims,
    model({ infos: [[...str('t'), ...u32(0xffff_ffff), ...u64(0), ...u64(0)]] }),
  ],
  ['dims-cut', 'tensors["t"]', dims, model({ infos: [[...str('t'), ...u32(4), ...u64(1), ...u64(1)]] })],
  ['dim-negative', 'tensors["t"].dims[0]', dims, model({ infos: [info('t', [max64], F32, 0)], dataBytes: 4 })],
  [
    'dims-overflow',
    'tensors["t"].dims',
    dims,
    model({ infos: [info('t', [2n ** 32n, 2n ** 32n], F32, 0)], dataBytes: 4 }),
  ],
  [
    'dims-overflow-to-zero',
    'tensors["t"].dims',
    dims,
    model({ infos: [info('t', [2n ** 32n, 2n ** 32n, 1, 0], F32, 0)], dataBytes: 4 }),
  ],
  ['block-broken', 'tensors["t"].dims[0]', dims, model({ infos: [info('t', [31, 2], Q8_0, 0)], dataBytes: 128 })],
  ['type-31', 'tensors["t"].type', dims + 8, model({ infos: [info('t', [32], 31, 0)], dataBytes: 128 })],
  ['type-huge', 'tensors["t"].type', dims + 8, model({ infos: [info('t', [32], 0xffff_ffff, 0)], dataBytes: 128 })],
  ['offset-unaligned', 'tensors["t"].offset', dims + 12, model({ infos: [info('t', [1], F32, 4)], dataBytes: 64 })],
  [
    'offset-huge',
    'tensors["t"].offset',
    dims + 12,
    model({ infos: [info('t', [1], F32, max64 - 31n)], dataBytes: 64 }),
  ],
  [
    'offset-2-53',
    'tensors["t"].offset',
    dims + 12,
    model({ infos: [info('t', [1], F32, 2n ** 53n - 32n)], dataBytes: 64 }),
  ],
  ['offset-past-end', 'tensors["t"].offset', dims + 12, model({ infos: [info('t', [1], F32, 64)], dataBytes: 64 })],
  ['data-missing', 'tensors["t"].offset', dims + 12, model({ infos: [info('t', [1], F32, 0)] })],
  ['data-cut', 'tensors["t"].offset', dims + 12, model({ infos: [info('t', [100], F32, 0)], dataBytes: 399 })],
  [
    'data-claim-huge',
    'tensors["t"].offset',
    dims + 12,
    model({ infos: [info('t', [2n ** 40n], F32, 0)], dataBytes: 64 }),
  ],
  [
    'data-overlap',
    'tensors["u"].offset',
    24 + 33 + dims + 12 - 24,
    model({ infos: [info('t', [9], F32, 0), info('u', [1], F32, 32)], dataBytes: 64 }),
  ],
  [
    'data-same',
    'tensors["u"].offset',
    24 + 33 + dims + 12 - 24,
    model({ infos: [info('t', [8], F32, 0), info('u', [8], F32, 0)], dataBytes: 64 }),
  ],
  ['split-part', 'metadata["split.count"]', 47, model({ pairs: [pair('split.count', 'uint32', u32(3))] })],
];

export const fuzzCases: readonly FuzzCase[] = cases.map(([name, field, byteOffset, bytes]) => ({
  file: `${name}.gguf`,
  field,
  byteOffset,
  bytes,
}));

/** Contents of `index.json`. */
export const fuzzIndex: string = `${JSON.stringify(
  fuzzCases.map(({ file, field, byteOffset }) => ({ file, field, byteOffset })),
  undefined,
  1,
)}\n`;

export const fuzzFolder: string = join(dirname(fileURLToPath(import.meta.url)), '../src/__fixtures__/fuzz');

if (import.meta.main) {
  rmSync(fuzzFolder, { recursive: true, force: true });
  mkdirSync(fuzzFolder, { recursive: true });
  for (const { file, bytes } of fuzzCases) writeFileSync(join(fuzzFolder, file), bytes);
  writeFileSync(join(fuzzFolder, 'index.json'), fuzzIndex);
}
