/** A cheap hash of a model's weights: from its metadata and samples of every tensor. */
import type { TensorStore } from '@winnow/bytes';
import { checksum64 } from '@winnow/kv-cache';
import type { Weight } from '@winnow/models';
import type { Backend, BufferHandle } from '@winnow/ops';
import { FormatError } from '@winnow/tensor';
import type { WeightTierPlan } from '../weight-offload/plan.js';

/** Bytes at the start, in the middle and at the end of each tensor. */
const sampleBytes = 64;

/**
 * Call it after the weights are loaded and before any program is prepared, since preparing may repack them. Fine-tunings
 * with the same header differ in the samples. Not secure against forgery.
 * @param weights of the model; those that are neither in a buffer nor in tiers are not in use
 */
export async function modelHash(
  metadata: Readonly<Record<string, unknown>>,
  store: TensorStore,
  backend: Backend,
  buffers: ReadonlyMap<string, BufferHandle>,
  weights: ReadonlyMap<string, Weight>,
  tiers: WeightTierPlan | undefined,
): Promise<string> {
  const tensors = [...store.tensors.values()].map(({ name, dtype, shape }) => [name, dtype, shape]);
  const text = new TextEncoder().encode(JSON.stringify([metadata, tensors]));
  const inTiers = new Set(tiers?.layers.flatMap(({ matrices }) => matrices.map(({ weightName }) => weightName)));
  // transposed matrices are what others are, and slow to read in parts
  const names = [...weights.keys()].filter((name) => !/\.(rows|columns)$/.test(name)).sort();
  const bytes = new Uint8Array(text.byteLength + names.length * 3 * sampleBytes);
  bytes.set(text);
  let at = text.byteLength;
  for (const name of names) {
    const buffer = buffers.get(name);
    const { stored } = weights.get(name) as Weight;
    if (buffer === undefined && !inTiers.has(name)) continue;
    const { sizeBytes } = buffer ?? stored;
    const length = Math.min(sampleBytes, sizeBytes);
    const last = sizeBytes - length;
    for (const byteOffset of [0, Math.floor(last / 2), last]) {
      const sample = bytes.subarray(at, at + length);
      await (buffer === undefined ? stored.read(sample, { byteOffset }) : backend.read(buffer, byteOffset, sample));
      at += sampleBytes;
    }
  }
  const sum = new Uint32Array(4);
  checksum64(bytes, 1, sum.subarray(0, 2));
  checksum64(bytes, 2, sum.subarray(2));
  return `xxh:${Array.from(sum, (word) => word.toString(16).padStart(8, '0')).join('')}`;
}

/**
 * For weights that were read once more.
 * @throws {FormatError} when they are not those of the name that the model has
 */
export async function checkSameModel(source: string, name: string, nameNow: () => Promise<string>): Promise<void> {
  const actual = await nameNow();
  if (actual === name) return;
  const message = `the file has changed since the model was loaded: expected weights ${name}, got ${actual}`;
  throw new FormatError({ source, field: 'weights', message });
}
