/** One WebAssembly memory: regions that appear and vanish in it. */
import { CapacityError } from '@winnow/tensor';
import { heapBase, pageBytes } from './layout.generated.js';
import { RegionAllocator } from './region-allocator.js';
import { createMemory, type WasmMemory } from './web-assembly.js';

export interface Heap {
  readonly memory: WasmMemory;
  readonly usedBytes: number;
  /** Bytes that are free, perhaps in several pieces. */
  readonly availableBytes: number;
  /** Address of zeros. @throws {CapacityError} */
  allocate(sizeBytes: number, label: string): number;
  /** Address of zeros, or `undefined` when they do not fit. */
  tryAllocate(sizeBytes: number): number | undefined;
  free(address: number): void;
  bytes(address: number, length: number): Uint8Array;
  words(address: number, length: number): Int32Array;
}

export function createHeap(maxBytes: number, isShared: boolean): Heap {
  const memory = createMemory(maxBytes, isShared);
  const limit = Math.floor(maxBytes / pageBytes) * pageBytes;
  let sizeBytes = memory.buffer.byteLength;
  let highest = heapBase; // beyond it nothing was ever written
  const regions = new RegionAllocator(heapBase, (end) => {
    if (end <= sizeBytes) return true;
    if (end > limit) return false;
    const pages = Math.ceil((end - sizeBytes) / pageBytes);
    try {
      memory.grow(pages);
    } catch {
      return false;
    }
    sizeBytes += pages * pageBytes;
    return true;
  });
  const available = (): number => Math.max(0, limit - heapBase - regions.usedBytes);
  function tryAllocate(length: number): number | undefined {
    const address = regions.allocate(length);
    if (address === undefined) return undefined;
    const end = address + length;
    if (address < highest) new Uint8Array(memory.buffer, address, Math.min(end, highest) - address).fill(0);
    highest = Math.max(highest, end);
    return address;
  }
  return {
    memory,
    get usedBytes() {
      return regions.usedBytes;
    },
    get availableBytes() {
      return available();
    },
    allocate(length, label) {
      const address = tryAllocate(length);
      if (address !== undefined) return address;
      const resource = `WebAssembly memory for ${label}`;
      throw new CapacityError({ resource, needed: length, available: available(), unit: 'bytes' });
    },
    tryAllocate,
    free: (address) => regions.free(address),
    bytes: (address, length) => new Uint8Array(memory.buffer, address, length),
    words: (address, length) => new Int32Array(memory.buffer, address, length),
  };
}
