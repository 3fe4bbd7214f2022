/** A name for the weights of a model, cheap to compute: from what its file says and from samples of every tensor. */
import type { TensorStore } from '@winnow/bytes';
import { checksum64 } from '@winnow/kv-cache';
import type { Backend, BufferHandle } from '@winnow/ops';

/** Bytes at the start, in the middle and at the end of each tensor. */
const sampleBytes = 64;

/**
 * Call it when the weights are loaded and no program is prepared, which may arrange them in its own way. Two fine-tunings
 * with the same header differ in the samples. Not for secrets: a forger can make two models with one name.
 * @param weights names of the buffers that hold the weights
 */
export async function modelHash(
  metadata: Readonly<Record<string, unknown>>,
  store: TensorStore,
  backend: Backend,
  buffers: ReadonlyMap<string, BufferHandle>,
  weights: Iterable<string>,
): Promise<string> {
  const tensors = [...store.tensors.values()].map(({ name, dtype, shape }) => [name, dtype, shape]);
  const text = new TextEncoder().encode(JSON.stringify([metadata, tensors]));
  const names = [...weights].sort();
  const bytes = new Uint8Array(text.byteLength + names.length * 3 * sampleBytes);
  bytes.set(text);
  let at = text.byteLength;
  for (const name of names) {
    const buffer = buffers.get(name);
    if (buffer === undefined) continue;
    const length = Math.min(sampleBytes, buffer.sizeBytes);
    const last = buffer.sizeBytes - length;
    for (const byteOffset of [0, last >> 1, last]) {
      await backend.read(buffer, byteOffset, bytes.subarray(at, at + length));
      at += sampleBytes;
    }
  }
  const sum = new Uint32Array(4);
  checksum64(bytes, 1, sum.subarray(0, 2));
  checksum64(bytes, 2, sum.subarray(2));
  return `xxh:${Array.from(sum, (word) => word.toString(16).padStart(8, '0')).join('')}`;
}
