/** Access to the buffers of the offload programs by name. */
import type { Backend, BufferHandle } from '@winnow/ops';
import { joinPageErrors } from './store.js';

export class OffloadBuffers {
  readonly #backend: Backend;
  readonly #buffers: ReadonlyMap<string, BufferHandle>;

  constructor(backend: Backend, buffers: ReadonlyMap<string, BufferHandle>) {
    this.#backend = backend;
    this.#buffers = buffers;
  }

  sizeBytes(name: string): number {
    return this.#handle(name).sizeBytes;
  }

  /** The bytes of a buffer, if the host can see them. */
  view(name: string): Uint8Array | undefined {
    return this.#backend.view(this.#handle(name));
  }

  /** Bytes of a buffer: a view if the host can access them, else a copy. */
  async read(name: string, byteOffset: number, sizeBytes: number): Promise<Uint8Array> {
    const view = this.view(name);
    if (view !== undefined) return view.subarray(byteOffset, byteOffset + sizeBytes);
    const bytes = new Uint8Array(sizeBytes);
    await this.#backend.read(this.#handle(name), byteOffset, bytes);
    return bytes;
  }

  async readFloats(name: string, byteOffset: number, count: number): Promise<Float32Array> {
    const bytes = await this.read(name, byteOffset, count * 4);
    return new Float32Array(bytes.buffer, bytes.byteOffset, count);
  }

  /** Lets `write` fill a range of a buffer. */
  async fill(
    name: string,
    byteOffset: number,
    sizeBytes: number,
    write: (target: Uint8Array) => void | Promise<void>,
  ): Promise<void> {
    const view = this.view(name);
    const target = view?.subarray(byteOffset, byteOffset + sizeBytes) ?? new Uint8Array(sizeBytes);
    await write(target);
    if (view === undefined) await this.#backend.write(this.#handle(name), byteOffset, target);
  }

  #handle(name: string): BufferHandle {
    return this.#buffers.get(name) as BufferHandle;
  }
}

/** Waits for all tasks, then throws one error for all failures. */
export async function settleAll(tasks: readonly Promise<void>[]): Promise<void> {
  const results = await Promise.allSettled(tasks);
  const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
  if (errors.length > 0) throw joinPageErrors(errors);
}
