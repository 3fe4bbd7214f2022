/** Brings weights, constants and an empty cache into a backend's memory. */
import { loadWeight, slotPositionsName, type EmbedderDescription } from '@winnow/models';
import type { Backend, BufferHandle, Program } from '@winnow/ops';
import { bufferGroups } from './buffer-groups.js';
import { buffersOf } from './program-buffers.js';
import type { LoadOptions } from '../types.js';

/** Buffers by name, for `prepare`. When loading fails, everything allocated is freed. */
export async function loadBuffers(
  backend: Backend,
  { weights, constants }: EmbedderDescription,
  programs: readonly Program[],
  { signal, onProgress }: Pick<LoadOptions, 'signal' | 'onProgress'>,
): Promise<Map<string, BufferHandle>> {
  const buffers = new Map<string, BufferHandle>();
  const groups = bufferGroups(programs);
  let loadedBytes = 0;
  let totalBytes = 0;
  for (const { name } of buffersOf(programs)) totalBytes += weights.get(name)?.stored.sizeBytes ?? 0;
  const onBytes = (numBytes: number): void => {
    loadedBytes += numBytes;
    onProgress?.({ loadedBytes, totalBytes });
  };
  /** Lets `fill` write into the buffer's own memory where the host can reach it. */
  const fillBuffer = async (
    buffer: BufferHandle,
    fill: (target: Uint8Array) => void | Promise<void>,
  ): Promise<void> => {
    const view = backend.view(buffer);
    const target = view ?? new Uint8Array(buffer.sizeBytes);
    await fill(target);
    if (view === undefined) await backend.write(buffer, 0, target);
  };
  try {
    for (const { name, usage, sizeBytes } of buffersOf(programs)) {
      const group = groups.get(name);
      const buffer = backend.allocate({ sizeBytes, usage, label: name, ...(group === undefined ? {} : { group }) });
      buffers.set(name, buffer);
      const weight = weights.get(name);
      const constant = constants.get(name);
      if (weight !== undefined) {
        await fillBuffer(buffer, (target) =>
          loadWeight(weight, target, { onBytes, ...(signal === undefined ? {} : { signal }) }),
        );
      } else if (constant !== undefined) {
        await fillBuffer(buffer, (target) =>
          target.set(new Uint8Array(constant.buffer, constant.byteOffset, constant.byteLength)),
        );
      } else if (name === slotPositionsName) {
        await fillBuffer(buffer, (target) => void target.fill(0xff)); // -1: empty
      }
    }
    return buffers;
  } catch (error) {
    for (const buffer of buffers.values()) backend.free(buffer);
    throw error;
  }
}
