/**
 * f16 caches are dequantized exactly for any contents: results equal those of f32 caches with the same numbers. Results are
 * bit-identical where sums have the same order, or one term.
 */
import { createScalarBlock, ProgramBuilder, type BufferHandle } from '@winnow/ops';
import { createRng, decode, encode, type DType } from '@winnow/tensor';
import { afterAll, describe, expect, test } from 'vitest';
import { createWasmBackend, type WasmBackend } from '../src/index.js';

const [numHeads, numKvHeads, headDim, blockSize, numBlocks] = [16, 2, 64, 64, 5];
const numKeys = 4 * blockSize + 40;
const rowsPerCache = numBlocks * numKvHeads * blockSize;

interface Caches {
  readonly keys: Uint8Array;
  readonly values: Uint8Array;
}

/** The same numbers in another dtype. */
function converted(bytes: Uint8Array, from: DType, to: DType): Uint8Array {
  const numbers = new Float32Array(rowsPerCache * headDim);
  decode(from, bytes, numbers);
  const result = new Uint8Array(numbers.length * (to === 'f32' ? 4 : 2));
  encode(to, numbers, result);
  return result;
}

async function attend(
  backend: WasmBackend,
  q: Float32Array,
  { keys, values }: Caches,
  dtypes: readonly [DType, DType],
): Promise<Float32Array> {
  const b = new ProgramBuilder({});
  const shape = [numBlocks, numKvHeads, blockSize, headDim];
  const numTokens = q.length / (numHeads * headDim);
  const inputs = {
    q: b.external('q', 'weights', 'f32', [numTokens, numHeads, headDim]),
    positions: b.scalar('positions', [numTokens]),
    sequences: b.scalar('sequences', [numTokens]),
    keys: b.external('keys', 'kv', dtypes[0], shape),
    values: b.external('values', 'kv', dtypes[1], shape),
    slotPositions: b.external('slotPositions', 'kv', 'i32', [numBlocks, blockSize]),
    blockTable: b.scalar('blockTable', [1, numBlocks]),
    contextLengths: b.scalar('contextLengths', [1]),
  };
  b.output('y', b.activation('attention', inputs, { scale: 1 }));
  const program = b.build();
  const slots = Int32Array.from({ length: numBlocks * blockSize }, (_, slot) => (slot < numKeys ? slot : -1));
  const buffers = new Map<string, BufferHandle>();
  const contents = { q: q, keys, values, slotPositions: slots };
  for (const [name, content] of Object.entries(contents)) {
    const bytes = new Uint8Array(content.buffer, content.byteOffset, content.byteLength);
    const usage = name === 'q' ? 'weights' : 'kv';
    const buffer = backend.allocate({ sizeBytes: bytes.length, usage, label: name });
    await backend.write(buffer, 0, bytes);
    buffers.set(name, buffer);
  }
  const executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
  const scalars = createScalarBlock(program.scalars, program.symbols);
  scalars.slot('positions').fill(numKeys);
  scalars.slot('contextLengths').fill(numKeys);
  scalars.slot('blockTable').set([0, 1, 2, 3, 4]);
  await executable.run(scalars.words);
  const y = new Float32Array(q.length);
  await executable.read('y', y);
  await executable.dispose();
  for (const buffer of buffers.values()) backend.free(buffer);
  return y;
}

/** Random binary16 numbers with a share of unusual ones: any finite bits, often zeros and denormals. */
function randomHalves(seed: number, share: number): Uint8Array {
  const rng = createRng(seed);
  const halves = new Uint8Array(rowsPerCache * headDim * 2);
  encode(
    'f16',
    Float32Array.from({ length: rowsPerCache * headDim }, () => rng.nextGaussian()),
    halves,
  );
  const words = new Uint16Array(halves.buffer);
  for (let i = 0; i < words.length; i++) {
    if (rng.nextFloat() >= share) continue;
    const sign = rng.nextInt(2) << 15;
    words[i] = sign | [0, 1, 0x3ff, 0x400, 0x7bff, rng.nextInt(0x400), rng.nextInt(0x7c00)][rng.nextInt(7)]!;
  }
  return halves;
}

describe.each([undefined, false])('relaxedSimd %s', async (relaxedSimd) => {
  const options = relaxedSimd === undefined ? {} : { relaxedSimd };
  const backend = await createWasmBackend({ maxMemoryBytes: 2 ** 26, numThreads: 1, ...options });
  afterAll(() => backend.dispose());

  /** One query per head that reads a single component of each key. */
  function picking(token: number): Float32Array {
    const q = new Float32Array(numHeads * headDim);
    for (let head = 0; head < numHeads; head++) q[head * headDim + ((head * 4 + token) % headDim)] = 2 ** -13;
    return q;
  }

  test.each([0, 0.002, 0.5])('values with a share of %s of unusual numbers', async (share) => {
    const values = randomHalves(1, share);
    const keys = converted(randomHalves(2, 0), 'f16', 'f32');
    const rng = createRng(3);
    const q = Float32Array.from({ length: 2 * numHeads * headDim }, () => 0.3 * rng.nextGaussian());
    const found = await attend(backend, q, { keys, values }, ['f32', 'f16']);
    const expected = await attend(backend, q, { keys, values: converted(values, 'f16', 'f32') }, ['f32', 'f32']);
    expect(new Uint32Array(found.buffer)).toEqual(new Uint32Array(expected.buffer));
  });

  test.each([0, 0.002, 0.5])('keys with a share of %s of unusual numbers', async (share) => {
    const keys = randomHalves(4, share);
    const values = converted(randomHalves(5, 0), 'f16', 'f32');
    for (let token = 0; token < 4; token++) {
      const found = await attend(backend, picking(token), { keys, values }, ['f16', 'f32']);
      const caches = { keys: converted(keys, 'f16', 'f32'), values };
      const expected = await attend(backend, picking(token), caches, ['f32', 'f32']);
      expect(new Uint32Array(found.buffer)).toEqual(new Uint32Array(expected.buffer));
    }
  });

  test('Inf and NaN of visible keys propagate, those of masked slots do not', async () => {
    const [keys, values] = [randomHalves(6, 0), randomHalves(7, 0)];
    const at = (slot: number, kvHead: number): number =>
      ((Math.floor(slot / blockSize) * numKvHeads + kvHead) * blockSize + (slot % blockSize)) * headDim;
    const q = picking(0);
    const before = await attend(backend, q, { keys, values }, ['f16', 'f16']);
    for (const cache of [keys, values]) {
      const words = new Uint16Array(cache.buffer);
      for (let slot = numKeys; slot < numBlocks * blockSize; slot++) {
        for (let kvHead = 0; kvHead < numKvHeads; kvHead++) words.fill(0x7e00, at(slot, kvHead), at(slot, kvHead) + 8);
      }
    }
    expect(await attend(backend, q, { keys, values }, ['f16', 'f16'])).toEqual(before);
    new Uint16Array(values.buffer).set([0x7c00, 0xfc00, 0x7e00], at(77, 1) + 5);
    const after = await attend(backend, q, { keys, values }, ['f16', 'f16']);
    for (let head = 0; head < numHeads; head++) {
      const row = after.subarray(head * headDim, (head + 1) * headDim);
      const special =
        head < numHeads / numKvHeads ? [...before.subarray(head * headDim + 5, head * headDim + 8)] : undefined;
      expect([...row.subarray(5, 8)]).toEqual(special ?? [Infinity, -Infinity, NaN]);
      expect(row[4]).toBeCloseTo(before[head * headDim + 4]!, 6);
    }
  });
});
