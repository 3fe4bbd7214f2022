import { CapacityError } from '@winnow/tensor';

/** @throws {CapacityError} when the allocation fails */
export function allocateBytes(resource: string, sizeBytes: number): Uint8Array {
  try {
    return new Uint8Array(sizeBytes);
  } catch {
    const hint = 'the system cannot allocate that much contiguous memory';
    throw new CapacityError({ resource, needed: sizeBytes, available: 0, unit: 'bytes', hint });
  }
}
