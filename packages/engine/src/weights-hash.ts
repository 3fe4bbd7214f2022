/** A name for the weights in a file, cheap to compute: from samples of every tensor as it is stored. */
import type { TensorStore } from '@winnow/bytes';
import { checksum64 } from '@winnow/kv-cache';

/** Bytes at the start, in the middle and at the end of each tensor. */
const sampleBytes = 64;

/** Two fine-tunings with the same header differ in the samples. Not for secrets: a forger can make two files with one name. */
export async function weightsHash(
  store: TensorStore,
  options: { readonly signal?: AbortSignal } = {},
): Promise<string> {
  const tensors = [...store.tensors.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const text = new TextEncoder().encode(JSON.stringify(tensors.map(({ name, dtype, shape }) => [name, dtype, shape])));
  const bytes = new Uint8Array(text.byteLength + tensors.length * 3 * sampleBytes);
  bytes.set(text);
  let at = text.byteLength;
  for (const tensor of tensors) {
    const length = Math.min(sampleBytes, tensor.sizeBytes);
    const last = tensor.sizeBytes - length;
    for (const byteOffset of [0, Math.floor(last / 2), last]) {
      await tensor.read(bytes.subarray(at, at + length), { ...options, byteOffset });
      at += sampleBytes;
    }
  }
  const sum = new Uint32Array(4);
  checksum64(bytes, 1, sum.subarray(0, 2));
  checksum64(bytes, 2, sum.subarray(2));
  return `xxh:${Array.from(sum, (word) => word.toString(16).padStart(8, '0')).join('')}`;
}
