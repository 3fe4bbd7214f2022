import { CapacityError } from '@winnow/tensor';

/** @throws {CapacityError} when there is no memory for it */
export function allocateBytes(resource: string, sizeBytes: number): Uint8Array {
  try {
    return new Uint8Array(sizeBytes);
  } catch {
    const hint = 'the system gives no more in one piece';
    throw new CapacityError({ resource, needed: sizeBytes, available: 0, unit: 'bytes', hint });
  }
}
