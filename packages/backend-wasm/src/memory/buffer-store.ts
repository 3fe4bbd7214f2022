/** The buffers of a backend: their locations, and access to their bytes between runs. */
import { checkCopy, type Backend, type BufferHandle, type BufferUsage, type Program } from '@winnow/ops';
import { ArgumentError, BackendError, ReleasedError } from '@winnow/tensor';
import type { WasmModule } from '../host/web-assembly.js';
import type { JobQueue } from '../runner/job-queue.js';
import { makeCurrent, setWritten, type BufferPlace, type WasmBuffer } from './buffer-places.js';
import type { MemoryPool } from './memory-pool.js';
import { repackAlone } from './repacking.js';

/** `copy` accepts any byte range. */
export const copyAlignment = 1;

export interface BufferStoreOptions {
  readonly pool: MemoryPool;
  readonly queue: JobQueue;
  readonly module: WasmModule;
  readonly now: () => number;
  /** @throws {ReleasedError} when the backend was disposed of */
  readonly checkDisposed: () => void;
}

export class BufferStore {
  readonly #options: BufferStoreOptions;
  readonly #identity = {};
  readonly #buffers = new Set<WasmBuffer>();

  constructor(options: BufferStoreOptions) {
    this.#options = options;
  }

  allocate({ sizeBytes, usage, label, group }: Parameters<Backend['allocate']>[0]): BufferHandle {
    this.#options.checkDisposed();
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) {
      throw new ArgumentError({ argument: `bytes of ${label}`, expected: '0 or more', actual: String(sizeBytes) });
    }
    const home: BufferPlace = { ...this.#options.pool.place(sizeBytes, label, group), isCurrent: true, repacked: [] };
    const buffer: WasmBuffer = { sizeBytes, usage, owner: this.#identity, label, places: [home] };
    this.#buffers.add(buffer);
    return buffer;
  }

  free(handle: BufferHandle): void {
    const { pool, queue } = this.#options;
    const buffer = this.bufferOf(handle);
    for (const { memory, address } of buffer.places) queue.whenIdle(() => pool.free(memory, address));
    buffer.places = [];
    this.#buffers.delete(buffer);
  }

  /** Drops all buffers, whose memory is freed with the backend. */
  clear(): void {
    for (const buffer of this.#buffers) buffer.places = [];
    this.#buffers.clear();
  }

  /** @throws {BackendError | ReleasedError} for a buffer of another backend, or one that was freed */
  bufferOf(handle: BufferHandle): WasmBuffer {
    this.#options.checkDisposed();
    const buffer = handle as WasmBuffer;
    if (buffer.owner !== this.#identity) {
      throw new BackendError({ backend: 'wasm', message: 'the buffer belongs to another backend' });
    }
    if (buffer.places.length === 0) throw new ReleasedError('wasm buffer');
    return buffer;
  }

  /** Bytes of a buffer in its home, in the layout in which the host wrote them. */
  rangeOf(handle: BufferHandle, byteOffset: number, length: number, isWritten: boolean): Uint8Array {
    const { isBusy } = this.#options.queue;
    const buffer = this.bufferOf(handle);
    checkRange(buffer, byteOffset, length);
    const [home] = buffer.places as readonly [BufferPlace];
    if (isBusy && !home.isCurrent) {
      throw new BackendError({ backend: 'wasm', message: 'a run is using the buffer: await the run first' });
    }
    if (isBusy && home.repacked.length > 0) {
      throw new BackendError({ backend: 'wasm', message: 'a run is using the weights: await the run first' });
    }
    return this.#contentOf(buffer, byteOffset, length, isWritten);
  }

  async copy(
    from: BufferHandle,
    fromOffset: number,
    to: BufferHandle,
    toOffset: number,
    sizeBytes: number,
  ): Promise<void> {
    const { queue, checkDisposed } = this.#options;
    checkRange(this.bufferOf(from), fromOffset, sizeBytes);
    checkRange(this.bufferOf(to), toOffset, sizeBytes);
    checkCopy({ from, fromOffset, to, toOffset, sizeBytes }, copyAlignment);
    const copyBytes = (): void => {
      const target = this.#contentOf(this.bufferOf(to), toOffset, sizeBytes, true); // either may be freed while the copy is queued
      target.set(this.#contentOf(this.bufferOf(from), fromOffset, sizeBytes, false));
    };
    if (queue.isBusy) await queue.takeTurn(copyBytes, checkDisposed);
    else copyBytes();
  }

  /** The weights and caches of a program by index. */
  bind(program: Program, handles: ReadonlyMap<string, BufferHandle>): Map<number, WasmBuffer> {
    const bound = new Map<number, WasmBuffer>();
    const external: readonly BufferUsage[] = ['weights', 'kv'];
    for (const [index, { name, usage, sizeBytes }] of program.buffers.entries()) {
      if (!external.includes(usage)) continue;
      const handle = handles.get(name);
      if (handle === undefined || handle.sizeBytes < sizeBytes) {
        throw new ArgumentError({
          argument: `buffer ${name}`,
          expected: `${sizeBytes} bytes`,
          actual: handle === undefined ? 'no handle' : `${handle.sizeBytes} bytes`,
        });
      }
      bound.set(index, this.bufferOf(handle));
    }
    return bound;
  }

  /** Bytes of a buffer; requires that no job runs. */
  #contentOf(buffer: WasmBuffer, byteOffset: number, length: number, isWritten: boolean): Uint8Array {
    const [home] = buffer.places as readonly [BufferPlace];
    makeCurrent(buffer, home);
    this.#restore(home);
    if (isWritten && buffer.places.length > 1) setWritten(buffer, home);
    return home.memory.heap.bytes(home.address + byteOffset, length);
  }

  /** Restores the layout in which the host wrote a buffer. */
  #restore(place: BufferPlace): void {
    if (place.repacked.length === 0) return;
    const steps = place.repacked.map((tensor) => ({ tensor, address: place.address, isRepacking: false }));
    repackAlone(steps, place.memory.heap, this.#options.module, this.#options.now);
    place.repacked = [];
  }
}

function checkRange({ sizeBytes }: BufferHandle, byteOffset: number, length: number): void {
  const isRange = [byteOffset, length].every((value) => Number.isSafeInteger(value) && value >= 0);
  if (isRange && byteOffset + length <= sizeBytes) return;
  throw new ArgumentError({
    argument: 'byte range',
    expected: `a range within ${sizeBytes} bytes`,
    actual: `[${byteOffset}, ${byteOffset + length})`,
  });
}
