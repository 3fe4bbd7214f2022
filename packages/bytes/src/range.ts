/** Checks shared by the byte sources. */
import { ArgumentError, IoError } from '@winnow/tensor';

/** @throws {IoError} unless `[byteOffset, byteOffset + numBytes)` lies inside a source of `sizeBytes` */
export function checkRange(name: string, sizeBytes: number, byteOffset: number, numBytes: number): void {
  if (!Number.isSafeInteger(byteOffset) || byteOffset < 0 || byteOffset + numBytes > sizeBytes) {
    throw new IoError({
      source: name,
      ...(Number.isSafeInteger(byteOffset) ? { byteOffset } : {}),
      message: `range outside of the source, expected [start, end) within [0, ${sizeBytes}), got [${byteOffset}, ${byteOffset + numBytes})`,
    });
  }
}

/** @throws {ArgumentError} unless `value` is a non-negative integer */
export function checkCount(argument: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new ArgumentError({ argument, expected: 'a non-negative integer', actual: String(value) });
  }
}

export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // fetch says only "fetch failed" and keeps the reason in `cause`
  return error.cause instanceof Error ? `${error.message} (${error.cause.message})` : error.message;
}
