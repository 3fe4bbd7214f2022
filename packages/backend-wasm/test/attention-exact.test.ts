/** A non-finite query is computed key by key, without effect on its neighbors. */
import { createScalarBlock, ProgramBuilder, type Attributes, type BufferHandle } from '@winnow/ops';
import { createRng } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createWasmBackend, type WasmBackend } from '../src/index.js';

const [numTokens, blockSize, numBlocks] = [3, 8, 3];
const numKeys = numBlocks * blockSize;

let backend: WasmBackend;
beforeAll(async () => {
  backend = await createWasmBackend({ maxMemoryBytes: 2 ** 26, numThreads: 1 });
});
afterAll(() => backend.dispose());

interface Heads {
  readonly numHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
}

async function attend(
  op: string,
  attributes: Attributes,
  { numHeads, headDim, valueDim }: Heads,
  spoilt: readonly number[],
): Promise<Float32Array[]> {
  const rng = createRng(1);
  const random = (length: number): Float32Array => Float32Array.from({ length }, () => rng.nextGaussian());
  const contents = {
    q: random(numTokens * numHeads * headDim),
    keys: random(numKeys * headDim),
    values: random(numKeys * valueDim),
    slotPositions: Int32Array.from({ length: numKeys }, (_, slot) => slot),
  };
  for (const row of spoilt) contents.q[row * headDim] = NaN;
  const b = new ProgramBuilder({});
  const inputs = {
    q: b.external('q', 'weights', 'f32', [numTokens, numHeads, headDim]),
    positions: b.scalar('positions', [numTokens]),
    sequences: b.scalar('sequences', [numTokens]),
    keys: b.external('keys', 'kv', 'f32', [numBlocks, 1, blockSize, headDim]),
    values: b.external('values', 'kv', 'f32', [numBlocks, 1, blockSize, valueDim]),
    slotPositions: b.external('slotPositions', 'kv', 'i32', [numBlocks, blockSize]),
    blockTable: b.scalar('blockTable', [1, numBlocks]),
    contextLengths: b.scalar('contextLengths', [1]),
  };
  b.output('y', b.append(op, inputs, { scale: 1, ...attributes })['y']!);
  const program = b.build();
  const buffers = new Map<string, BufferHandle>();
  for (const [name, content] of Object.entries(contents)) {
    const bytes = new Uint8Array(content.buffer);
    const usage = name === 'q' ? 'weights' : 'kv';
    const buffer = backend.allocate({ sizeBytes: bytes.length, usage, label: name });
    await backend.write(buffer, 0, bytes);
    buffers.set(name, buffer);
  }
  const executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
  const scalars = createScalarBlock(program.scalars, program.symbols);
  scalars.slot('positions').set(Array.from({ length: numTokens }, (_, token) => numKeys - numTokens + token));
  scalars.slot('contextLengths').fill(numKeys);
  scalars.slot('blockTable').set([0, 1, 2]);
  await executable.run(scalars.words);
  const y = new Float32Array(numTokens * numHeads * valueDim);
  await executable.read('y', y);
  await executable.dispose();
  for (const buffer of buffers.values()) backend.free(buffer);
  return Array.from({ length: numTokens * numHeads }, (_, row) => y.slice(row * valueDim, (row + 1) * valueDim));
}

describe.each([
  ['attention', {}],
  ['streaming-attention', { local: 9, sinks: 2 }],
  ['subquadratic-attention', { local: 5 }],
] as const)('%s', (op, attributes) => {
  test.each([
    { numHeads: 1, headDim: 1, valueDim: 40 },
    { numHeads: 5, headDim: 1, valueDim: 40 },
    { numHeads: 5, headDim: 3, valueDim: 128 },
    { numHeads: 3, headDim: 32, valueDim: 6 },
  ])('$numHeads heads of $headDim / $valueDim', async (heads) => {
    const before = await attend(op, attributes, heads, []);
    const spoilt = [0, heads.numHeads];
    const after = await attend(op, attributes, heads, spoilt);
    for (const [row, numbers] of after.entries()) {
      if (spoilt.includes(row)) expect(numbers.every(Number.isNaN)).toBe(true);
      // panels and single queries differ by a few roundings per key, relative to values of a few units
      else
        for (const [i, x] of numbers.entries()) expect(Math.abs(x - before[row]![i]!)).toBeLessThan(numKeys * 2 ** -20);
    }
  });
});
