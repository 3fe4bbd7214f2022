/** Attention through a block table is bit-identical to a contiguous cache, wherever the blocks are. */
import { createScalarBlock, ProgramBuilder, type BufferHandle } from '@winnow/ops';
import { createRng, encode, tensorBytes, type DType } from '@winnow/tensor';
import { afterAll, expect, test } from 'vitest';
import { createWasmBackend } from '../src/index.js';

const backend = await createWasmBackend({ numThreads: 2, minSharedWork: 0, maxMemoryBytes: 2 ** 26 });
afterAll(() => backend.dispose());

const [numHeads, numKvHeads, headDim, blockSize, numBlocks] = [6, 2, 64, 64, 9];
const numSlots = 7 * blockSize + 5;
const rowElements = numKvHeads * blockSize * headDim;
/** Block tables of the sequence. */
const tables = { contiguous: [0, 1, 2, 3, 4, 5, 6, 7], scattered: [6, 2, 8, 0, 5, 1, 7, 3] };

async function attend(dtype: DType, numTokens: number, table: readonly number[]): Promise<Uint8Array> {
  const b = new ProgramBuilder({});
  const shape = [numBlocks, numKvHeads, blockSize, headDim];
  const kv = {
    keys: b.external('keys', 'kv', dtype, shape),
    values: b.external('values', 'kv', dtype, shape),
    slotPositions: b.external('slotPositions', 'kv', 'i32', [numBlocks, blockSize]),
    blockTable: b.scalar('blockTable', [1, table.length]),
    contextLengths: b.scalar('contextLengths', [1]),
  };
  const q = b.external('q', 'weights', 'f32', [numTokens, numHeads, headDim]);
  const [positions, sequences] = [b.scalar('positions', [numTokens]), b.scalar('sequences', [numTokens])];
  const y = b.activation('attention', { q, positions, sequences, ...kv }, { scale: 0.2 });
  b.output('y', y);
  const program = b.build();

  const rng = createRng(7);
  const random = (length: number): Float32Array => Float32Array.from({ length }, () => rng.nextGaussian());
  const buffers = new Map<string, BufferHandle>();
  const write = async (name: string, usage: 'kv' | 'weights', bytes: Uint8Array): Promise<void> => {
    const buffer = backend.allocate({ sizeBytes: bytes.length, usage, label: name });
    buffers.set(name, buffer);
    await backend.write(buffer, 0, bytes);
  };
  const rowBytes = tensorBytes(dtype, shape.slice(1));
  for (const name of ['keys', 'values']) {
    const bytes = new Uint8Array(numBlocks * rowBytes).fill(0xff);
    for (const block of table)
      encode(dtype, random(rowElements), bytes.subarray(block * rowBytes, (block + 1) * rowBytes));
    await write(name, 'kv', bytes);
  }
  const slots = new Int32Array(numBlocks * blockSize).fill(-1);
  for (let j = 0; j < numSlots; j++) slots[table[Math.floor(j / blockSize)]! * blockSize + (j % blockSize)] = j;
  await write('slotPositions', 'kv', new Uint8Array(slots.buffer));
  await write('q', 'weights', new Uint8Array(random(numTokens * numHeads * headDim).buffer));
  const executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
  const scalars = createScalarBlock(program.scalars, program.symbols);
  scalars.slot('blockTable').set(table);
  scalars.slot('contextLengths').set([numSlots]);
  for (let t = 0; t < numTokens; t++) scalars.slot('positions')[t] = numSlots - numTokens + t;
  await executable.run(scalars.words);
  const result = new Float32Array(numTokens * numHeads * headDim);
  await executable.read('y', result);
  await executable.dispose();
  for (const buffer of buffers.values()) backend.free(buffer);
  expect(result.some((value) => value !== 0) && result.every(Number.isFinite)).toBe(true);
  return new Uint8Array(result.buffer);
}

test.each(['f32', 'f16', 'q8_0', 'q4_0'] as const)('%s', async (dtype) => {
  for (const numTokens of [1, 3, 70]) {
    const contiguous = await attend(dtype, numTokens, tables.contiguous);
    expect(await attend(dtype, numTokens, tables.scattered)).toEqual(contiguous);
  }
});
