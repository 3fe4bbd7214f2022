/** One WebAssembly memory and its allocated regions. */
import { CapacityError } from '@winnow/tensor';
import { createMemory, type WasmMemory } from '../host/web-assembly.js';
import { heapBase, pageBytes } from '../kernels/layout.generated.js';
import { RegionAllocator } from './region-allocator.js';

export class Heap {
  readonly memory: WasmMemory;
  readonly #limit: number;
  readonly #regions: RegionAllocator;
  #sizeBytes: number;
  /** Bytes from here on were never written, so they are still zero. */
  #highest = heapBase;

  constructor(maxBytes: number, isShared: boolean) {
    this.memory = createMemory(maxBytes, isShared);
    this.#limit = Math.floor(maxBytes / pageBytes) * pageBytes;
    this.#sizeBytes = this.memory.buffer.byteLength;
    this.#regions = new RegionAllocator(heapBase, (end) => this.#grow(end));
  }

  get usedBytes(): number {
    return this.#regions.usedBytes;
  }

  /** Free bytes, possibly fragmented. */
  get availableBytes(): number {
    return Math.max(0, this.#limit - heapBase - this.#regions.usedBytes);
  }

  /** Allocates zeroed memory. @throws {CapacityError} */
  allocate(sizeBytes: number, label: string): number {
    const address = this.tryAllocate(sizeBytes);
    if (address !== undefined) return address;
    const resource = `WebAssembly memory for ${label}`;
    throw new CapacityError({ resource, needed: sizeBytes, available: this.availableBytes, unit: 'bytes' });
  }

  /** Allocates zeroed memory, or returns `undefined` if it does not fit. */
  tryAllocate(sizeBytes: number): number | undefined {
    const address = this.#regions.allocate(sizeBytes);
    if (address === undefined) return undefined;
    const end = address + sizeBytes;
    if (address < this.#highest) this.#clear(address, Math.min(end, this.#highest));
    this.#highest = Math.max(this.#highest, end);
    return address;
  }

  free(address: number): void {
    this.#regions.free(address);
  }

  bytes(address: number, length: number): Uint8Array {
    return new Uint8Array(this.memory.buffer, address, length);
  }

  words(address: number, length: number): Int32Array {
    return new Int32Array(this.memory.buffer, address, length);
  }

  /** Clears eight bytes at a time, up to seven of the padding after the region: V8 fills shared memory element by element. */
  #clear(begin: number, end: number): void {
    new Float64Array(this.memory.buffer, begin, Math.ceil((end - begin) / 8)).fill(0);
  }

  /** Whether the memory reaches to `end` now. */
  #grow(end: number): boolean {
    if (end <= this.#sizeBytes) return true;
    if (end > this.#limit) return false;
    const pages = Math.ceil((end - this.#sizeBytes) / pageBytes);
    try {
      this.memory.grow(pages);
    } catch {
      return false;
    }
    this.#sizeBytes += pages * pageBytes;
    return true;
  }
}
