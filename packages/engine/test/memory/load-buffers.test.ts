/** Writes to a backend without host-visible memory while a model loads. */
import { maxPieceBytes, slotPositionsName, type EmbedderDescription, type Weight } from '@winnow/models';
import { createReferenceBackend, ProgramBuilder, type Backend, type BufferHandle } from '@winnow/ops';
import { IoError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { loadBuffers } from '../../src/memory/load-buffers.js';

/** Weights, constants and empty slots that each take more than two pieces. */
const numValues = (2 * maxPieceBytes) / 4 + 12;

function description(): Pick<EmbedderDescription, 'weights' | 'constants'> {
  const values = Float32Array.from({ length: numValues }, (_, index) => index);
  const fileBytes = new Uint8Array(values.buffer);
  const shape = [numValues];
  const sizeBytes = fileBytes.length;
  const read = async (target: Uint8Array, { byteOffset = 0 } = {}): Promise<void> =>
    target.set(fileBytes.subarray(byteOffset, byteOffset + target.length));
  const stored = { name: 'weight', dtype: 'f32', shape, sizeBytes, read } as const;
  const weight: Weight = { name: 'weight', dtype: 'f32', shape, sizeBytes, stored };
  return { weights: new Map([['weight', weight]]), constants: new Map([['constant', values.map((value) => -value)]]) };
}

async function load(backend: Backend): Promise<Map<string, BufferHandle>> {
  const b = new ProgramBuilder({});
  b.external('weight', 'weights', 'f32', [numValues]);
  b.external('constant', 'weights', 'f32', [numValues]);
  b.external(slotPositionsName, 'kv', 'i32', [numValues]);
  return loadBuffers(backend, description() as EmbedderDescription, [b.build()], {});
}

test('memory that the host cannot map is written in bounded pieces', async () => {
  const inner = createReferenceBackend();
  const sizes: number[] = [];
  const hidden: Backend = {
    ...inner,
    view: () => undefined,
    async write(buffer, byteOffset, bytes) {
      sizes.push(bytes.length);
      await inner.write(buffer, byteOffset, bytes);
    },
  };
  const found = await load(hidden);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(maxPieceBytes);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(3 * 4 * numValues);
  const reference = createReferenceBackend();
  for (const [name, expected] of await load(reference)) {
    const bytes = inner.view(found.get(name) as BufferHandle) as Uint8Array;
    expect([name, Buffer.compare(bytes, reference.view(expected) as Uint8Array)]).toEqual([name, 0]);
  }
});

test('when reading one weight fails, memory is freed only after the others have been read', async () => {
  const events: string[] = [];
  const weight = (name: string, read: () => Promise<void>): Weight => {
    const stored = { name, dtype: 'f32', shape: [4], sizeBytes: 16, read } as const;
    return { name, dtype: 'f32', shape: [4], sizeBytes: 16, stored };
  };
  let finishSlow = (): void => {};
  const slow = new Promise<void>((resolve) => (finishSlow = resolve));
  const weights = new Map([
    ...['first', 'second', 'third'].map((name): [string, Weight] => [
      name,
      weight(name, () => slow.then(() => void events.push('read'))),
    ]),
    ['broken', weight('broken', () => Promise.reject(new IoError({ source: 'file', message: 'no answer' })))],
    ['unread', weight('unread', () => Promise.reject(new Error('must not be read')))],
  ]);
  const b = new ProgramBuilder({});
  for (const name of weights.keys()) b.external(name, 'weights', 'f32', [4]);
  const inner = createReferenceBackend();
  const backend: Backend = {
    ...inner,
    free(buffer) {
      events.push('free');
      inner.free(buffer);
    },
  };
  const loading = loadBuffers(
    backend,
    { weights, constants: new Map() } as unknown as EmbedderDescription,
    [b.build()],
    {},
  );
  setTimeout(finishSlow, 20);
  await expect(loading).rejects.toThrow(IoError);
  expect(events).toEqual([...Array(3).fill('read'), ...Array(4).fill('free')]);
});
