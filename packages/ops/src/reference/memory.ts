/** Buffers of the reference backend: plain host memory. */
import { ArgumentError, BackendError, CapacityError, ReleasedError } from '@winnow/tensor';
import type { BufferHandle } from '../backend/backend.js';
import type { BufferUsage, Program } from '../program/program.js';

interface ReferenceBuffer extends BufferHandle {
  bytes: Uint8Array | undefined;
  readonly owner: ReferenceMemory;
}

export class ReferenceMemory {
  readonly #buffers = new Set<ReferenceBuffer>();
  #isDisposed = false;

  checkDisposed(): void {
    if (this.#isDisposed) throw new ReleasedError('reference backend');
  }

  allocate({ sizeBytes, usage, label }: { sizeBytes: number; usage: BufferUsage; label: string }): BufferHandle {
    this.checkDisposed();
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) {
      throw new ArgumentError({ argument: `bytes of ${label}`, expected: '0 or more', actual: String(sizeBytes) });
    }
    const buffer: ReferenceBuffer = { sizeBytes, usage, owner: this, bytes: allocateBytes(sizeBytes, label) };
    this.#buffers.add(buffer);
    return buffer;
  }

  bytesOf(handle: BufferHandle): Uint8Array {
    this.checkDisposed();
    const buffer = handle as ReferenceBuffer;
    if (buffer.owner !== this) {
      throw new BackendError({ backend: 'reference', message: 'the buffer belongs to another backend' });
    }
    if (buffer.bytes === undefined) throw new ReleasedError('reference buffer');
    return buffer.bytes;
  }

  rangeOf(handle: BufferHandle, byteOffset: number, sizeBytes: number): Uint8Array {
    const bytes = this.bytesOf(handle);
    if (
      !Number.isSafeInteger(byteOffset) ||
      !Number.isSafeInteger(sizeBytes) ||
      byteOffset < 0 ||
      sizeBytes < 0 ||
      byteOffset + sizeBytes > bytes.length
    ) {
      throw new ArgumentError({
        argument: 'byte range',
        expected: `a range within ${bytes.length} bytes`,
        actual: `[${byteOffset}, ${byteOffset + sizeBytes})`,
      });
    }
    return bytes.subarray(byteOffset, byteOffset + sizeBytes);
  }

  /** Allocates scalars and activations; uses the bound handles for everything else. */
  ofProgram({ buffers }: Program, bound: ReadonlyMap<string, BufferHandle>): Uint8Array[] {
    return buffers.map(({ name, usage, sizeBytes }) => {
      if (usage === 'scalars' || usage === 'activation') return allocateBytes(sizeBytes, name);
      const handle = bound.get(name);
      if (handle === undefined || handle.sizeBytes < sizeBytes) {
        throw new ArgumentError({
          argument: `buffer ${name}`,
          expected: `${sizeBytes} bytes`,
          actual: handle === undefined ? 'no handle' : `${handle.sizeBytes} bytes`,
        });
      }
      return this.bytesOf(handle);
    });
  }

  free(handle: BufferHandle): void {
    this.bytesOf(handle);
    (handle as ReferenceBuffer).bytes = undefined;
    this.#buffers.delete(handle as ReferenceBuffer);
  }

  dispose(): void {
    this.#isDisposed = true;
    for (const buffer of this.#buffers) buffer.bytes = undefined;
    this.#buffers.clear();
  }
}

/** @throws {CapacityError} when the host is out of memory */
function allocateBytes(sizeBytes: number, label: string): Uint8Array {
  try {
    return new Uint8Array(new ArrayBuffer(sizeBytes));
  } catch {
    throw new CapacityError({ resource: label, needed: sizeBytes, available: 0, unit: 'bytes' });
  }
}
