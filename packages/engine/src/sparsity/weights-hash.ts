/** Hashes of the weights in a file: one of samples of every stored tensor, one of all of their bytes. */
import type { StoredTensor, TensorStore } from '@winnow/bytes';
import { checksum64 } from '@winnow/kv-cache';

/** Bytes at the start, in the middle and at the end of each tensor. */
const sampleBytes = 64;

/** Fine-tunings with the same header differ in the samples. Not secure against forgery. */
export async function weightsHash(
  store: TensorStore,
  options: { readonly signal?: AbortSignal } = {},
): Promise<string> {
  const { tensors, text } = listOf(store);
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
  return nameOf('xxh', bytes);
}

/** Bytes per chunk: the checksum covers the checksums of chunks. */
const chunkBytes = 1024 * 1024;

/** A checksum of the header and all bytes of the weights, so any damage changes it. Reads the whole file. */
export async function weightsChecksum(
  store: TensorStore,
  options: { readonly signal?: AbortSignal } = {},
): Promise<string> {
  const { tensors, text } = listOf(store);
  const numChunks = tensors.reduce((count, { sizeBytes }) => count + Math.ceil(sizeBytes / chunkBytes), 0);
  const sums = new Uint32Array(2 * numChunks);
  const chunk = new Uint8Array(chunkBytes);
  let at = 0;
  for (const tensor of tensors) {
    for (let byteOffset = 0; byteOffset < tensor.sizeBytes; byteOffset += chunkBytes, at += 2) {
      const piece = chunk.subarray(0, Math.min(chunkBytes, tensor.sizeBytes - byteOffset));
      await tensor.read(piece, { ...options, byteOffset });
      checksum64(piece, 1, sums.subarray(at, at + 2));
    }
  }
  const bytes = new Uint8Array(text.byteLength + sums.byteLength);
  bytes.set(text);
  bytes.set(new Uint8Array(sums.buffer), text.byteLength);
  return nameOf('xxh-all', bytes);
}

/** Both, for calibrations. */
export interface WeightNames {
  readonly weightsHash: string;
  readonly weightsChecksum: string;
}

export async function weightNames(
  store: TensorStore,
  { signal }: { readonly signal?: AbortSignal },
): Promise<WeightNames> {
  const options = signal === undefined ? {} : { signal };
  return { weightsHash: await weightsHash(store, options), weightsChecksum: await weightsChecksum(store, options) };
}

/** The tensors by name, with their headers. */
function listOf(store: TensorStore): { readonly tensors: readonly StoredTensor[]; readonly text: Uint8Array } {
  const tensors = [...store.tensors.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
  const text = new TextEncoder().encode(JSON.stringify(tensors.map(({ name, dtype, shape }) => [name, dtype, shape])));
  return { tensors, text };
}

function nameOf(kind: string, bytes: Uint8Array): string {
  const sum = new Uint32Array(4);
  checksum64(bytes, 1, sum.subarray(0, 2));
  checksum64(bytes, 2, sum.subarray(2));
  return `${kind}:${Array.from(sum, (word) => word.toString(16).padStart(8, '0')).join('')}`;
}
