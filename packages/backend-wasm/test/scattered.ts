/** Backends with buffers in different memories, so that nearly every op has to copy tensors. */
import type { Backend, BufferGroup } from '@winnow/ops';
import { createWasmBackend, type CreateWasmBackendOptions, type WasmBackend } from '../src/index.js';
import { heapBase } from '../src/kernels/layout.generated.js';

const bytesPerMemory = 2 ** 24;
const reservedBytes = 2 ** 23;
/** Bytes of a memory available to buffers. */
const room = bytesPerMemory - heapBase - reservedBytes;
/** Bytes taken by an allocation of a few bytes. */
const pinBytes = 128;

/** A backend that puts each buffer into the emptiest of `numMemories` memories. */
export async function createScattered(
  numMemories: number,
  options: CreateWasmBackendOptions,
): Promise<{ readonly backend: Backend; readonly inner: WasmBackend }> {
  const maxMemoryBytes = numMemories * bytesPerMemory;
  const inner = await createWasmBackend({ ...options, maxMemoryBytes, bytesPerMemory, reservedBytes });
  // pins every memory, so that none is released when the buffers of a test are freed
  for (let i = 0; i < numMemories; i++) {
    inner.allocate({ sizeBytes: 1, usage: 'weights', label: 'pin', group: { sizeBytes: room } });
  }
  const backend: Backend = {
    ...inner,
    limits: { ...inner.limits, maxBufferBytes: room - pinBytes },
    allocate(request) {
      const group: BufferGroup = { sizeBytes: room - pinBytes }; // fits a memory that holds only its pin
      return inner.allocate({ ...request, group });
    },
  };
  return { backend, inner };
}
