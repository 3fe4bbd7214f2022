/** Loads weights, constants and an empty cache into a backend's memory. */
import { loadWeight, maxPieceBytes, slotPositionsName, streamWeight, type EmbedderDescription } from '@winnow/models';
import type { Backend, BufferGroup, BufferHandle, Program, ProgramBuffer } from '@winnow/ops';
import { buffersOf } from './program-buffers.js';

/** Progress of loading: bytes of weights so far. */
export interface LoadProgress {
  readonly loadedBytes: number;
  readonly totalBytes: number;
}

/**
 * Concurrent reads of weights: a single copy does not saturate memory bandwidth, disks and servers have latency, and two leave a
 * core idle between a read and the next one.
 */
const maxReads = 4;

interface LoadBuffersOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: LoadProgress) => void;
}

/** Buffers by name, for `prepare`. When loading fails, everything allocated is freed. */
export async function loadBuffers(
  backend: Backend,
  description: EmbedderDescription,
  programs: readonly Program[],
  options: LoadBuffersOptions,
): Promise<Map<string, BufferHandle>> {
  const buffers = new Map<string, BufferHandle>();
  const groups = bufferGroups(programs);
  const allocate = ({ name, usage, sizeBytes }: ProgramBuffer): void => {
    const group = groups.get(name);
    buffers.set(name, backend.allocate({ sizeBytes, usage, label: name, ...(group === undefined ? {} : { group }) }));
  };
  try {
    await fillBuffers(backend, description, programs, buffers, options, allocate);
    return buffers;
  } catch (error) {
    for (const buffer of buffers.values()) backend.free(buffer);
    throw error;
  }
}

/**
 * Loads weights, constants and an empty cache into zeroed buffers.
 * @param allocate called before each buffer is filled
 */
export async function fillBuffers(
  backend: Backend,
  { weights, constants }: EmbedderDescription,
  programs: readonly Program[],
  buffers: ReadonlyMap<string, BufferHandle>,
  { signal, onProgress }: LoadBuffersOptions = {},
  allocate?: (buffer: ProgramBuffer) => void,
): Promise<void> {
  let loadedBytes = 0;
  let totalBytes = 0;
  for (const { name } of buffersOf(programs)) totalBytes += weights.get(name)?.stored.sizeBytes ?? 0;
  const onBytes = (numBytes: number): void => {
    loadedBytes += numBytes;
    onProgress?.({ loadedBytes, totalBytes });
  };
  const options = { onBytes, ...(signal === undefined ? {} : { signal }) };
  const fill = async ({ name }: ProgramBuffer): Promise<void> => {
    const buffer = buffers.get(name) as BufferHandle;
    const weight = weights.get(name);
    const constant = constants.get(name);
    if (weight !== undefined) {
      // directly into the buffer's memory if the host can access it, else in pieces
      const view = backend.view(buffer);
      if (view !== undefined) await loadWeight(weight, view, options);
      else await streamWeight(weight, (bytes, byteOffset) => backend.write(buffer, byteOffset, bytes), options);
    } else if (constant !== undefined) await fillConstant(backend, buffer, constant);
    else if (name.endsWith(slotPositionsName)) await fillEmpty(backend, buffer);
  };
  const reads = new Set<Promise<unknown>>();
  try {
    for (const programBuffer of buffersOf(programs)) {
      allocate?.(programBuffer);
      const read: Promise<unknown> = fill(programBuffer).then(() => reads.delete(read));
      reads.add(read);
      if (reads.size >= maxReads) await Promise.race(reads);
    }
    await Promise.all(reads);
  } finally {
    await Promise.allSettled(reads); // after a failure, nothing may be written into memory that the caller frees
  }
}

async function fillConstant(
  backend: Backend,
  buffer: BufferHandle,
  { buffer: memory, byteOffset, byteLength }: Float32Array,
): Promise<void> {
  const bytes = new Uint8Array(memory, byteOffset, byteLength);
  const view = backend.view(buffer);
  if (view !== undefined) return view.set(bytes);
  for (let begin = 0; begin < byteLength; begin += maxPieceBytes) {
    await backend.write(buffer, begin, bytes.subarray(begin, begin + maxPieceBytes));
  }
}

/** Positions of empty slots are -1. */
async function fillEmpty(backend: Backend, buffer: BufferHandle): Promise<void> {
  const view = backend.view(buffer);
  if (view !== undefined) return void view.fill(0xff);
  const bytes = new Uint8Array(Math.min(buffer.sizeBytes, maxPieceBytes)).fill(0xff);
  for (let begin = 0; begin < buffer.sizeBytes; begin += bytes.length) {
    await backend.write(buffer, begin, bytes.subarray(0, buffer.sizeBytes - begin));
  }
}

/** The group of every buffer that is used in one layer only. */
function bufferGroups(programs: readonly Program[]): Map<string, BufferGroup> {
  const layers = new Map<string, Set<number>>();
  for (const { buffers, records } of programs) {
    for (const { inputs, outputs, layer } of records) {
      for (const { buffer } of [...Object.values(inputs), ...Object.values(outputs)]) {
        const { name } = buffers[buffer] as { readonly name: string };
        const known = layers.get(name) ?? new Set();
        layers.set(name, known.add(layer));
      }
    }
  }
  const members = new Map<number, string[]>();
  const sizes = new Map<number, number>();
  for (const { name, sizeBytes } of buffersOf(programs)) {
    const [layer = -1, ...others] = layers.get(name) ?? [];
    if (layer < 0 || others.length > 0) continue;
    members.set(layer, [...(members.get(layer) ?? []), name]);
    sizes.set(layer, (sizes.get(layer) ?? 0) + sizeBytes);
  }
  const groups = new Map<string, BufferGroup>();
  for (const [layer, names] of members) {
    const group: BufferGroup = { sizeBytes: sizes.get(layer) as number };
    for (const name of names) groups.set(name, group);
  }
  return groups;
}
