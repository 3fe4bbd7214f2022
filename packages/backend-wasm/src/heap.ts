/** The memory of a backend: regions that appear and vanish in one WebAssembly memory. */
import { CapacityError } from '@winnow/tensor';
import { heapBase, pageBytes } from './layout.js';
import { createRegionAllocator } from './region-allocator.js';
import { createMemory, type WasmMemory } from './web-assembly.js';

export interface Heap {
  readonly memory: WasmMemory;
  readonly usedBytes: number;
  /** Address of zeros. @throws {CapacityError} */
  allocate(sizeBytes: number, label: string): number;
  free(address: number): void;
  bytes(address: number, length: number): Uint8Array;
  words(address: number, length: number): Int32Array;
}

export function createHeap(maxBytes: number, isShared: boolean): Heap {
  const memory = createMemory(maxBytes, isShared);
  const limit = Math.floor(maxBytes / pageBytes) * pageBytes;
  let sizeBytes = memory.buffer.byteLength;
  let highest = heapBase; // beyond it nothing was ever written
  const regions = createRegionAllocator(heapBase, (end) => {
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
  return {
    memory,
    get usedBytes() {
      return regions.usedBytes;
    },
    allocate(length, label) {
      const address = regions.allocate(length);
      if (address === undefined) {
        const available = Math.max(0, limit - heapBase - regions.usedBytes);
        throw new CapacityError({
          resource: `WebAssembly memory for ${label}`,
          needed: length,
          available,
          unit: 'bytes',
        });
      }
      const end = address + length;
      if (address < highest) new Uint8Array(memory.buffer, address, Math.min(end, highest) - address).fill(0);
      highest = Math.max(highest, end);
      return address;
    },
    free: (address) => regions.free(address),
    bytes: (address, length) => new Uint8Array(memory.buffer, address, length),
    words: (address, length) => new Int32Array(memory.buffer, address, length),
  };
}
