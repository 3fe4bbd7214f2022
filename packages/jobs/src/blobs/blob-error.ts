/** Errors of blob stores, with a reason that programs can react to. */
import { isTransient } from '@winnow/bytes';
import { IoError } from '@winnow/tensor';

/**
 * - `missing`: the key has no content
 * - `exists`: the key has content, despite `ifAbsent`
 * - `checksum`: the content is not what was expected
 * - `changed`: the content was replaced while it was read
 * - `expired`: the store has discarded the parts of an unfinished write
 * - `denied`: the store does not allow it
 * - `unavailable`: no answer, or a failure of the store that may pass; all retries have failed
 * - `failed`: anything else
 */
export type BlobErrorReason =
  | 'missing'
  | 'exists'
  | 'checksum'
  | 'changed'
  | 'expired'
  | 'denied'
  | 'unavailable'
  | 'failed';

/** An `IoError` of a blob store. */
export class BlobError extends IoError {
  override readonly name: string = 'BlobError';
  readonly reason: BlobErrorReason;
  /** Delay before another attempt that the store asks for, in milliseconds. */
  readonly retryAfterMs: number;

  constructor(
    fields: { source: string; byteOffset?: number; message: string; reason: BlobErrorReason; retryAfterMs?: number },
    options?: { cause?: unknown },
  ) {
    super(fields, options);
    this.reason = fields.reason;
    this.retryAfterMs = fields.retryAfterMs ?? 0;
  }

  static override isInstance(value: unknown): value is BlobError {
    return IoError.isInstance(value) && 'reason' in value;
  }
}

export function missingBlob(source: string): BlobError {
  return new BlobError({ source, reason: 'missing', message: 'no such content' });
}

export function existingBlob(source: string): BlobError {
  return new BlobError({ source, reason: 'exists', message: 'the content already exists, expected none (ifAbsent)' });
}

/** Converts an error of a file or of the system to one of a blob store. */
export function withReason(source: string, error: Error, reason: BlobErrorReason): BlobError {
  if (!IoError.isInstance(error)) return new BlobError({ source, reason, message: error.message }, { cause: error });
  const { byteOffset, detail } = error;
  const at = byteOffset === undefined ? {} : { byteOffset };
  return new BlobError({ source, ...at, reason, message: detail }, { cause: error });
}

export function changedBlob(source: string, expected: string, actual: string): BlobError {
  const message = `the content was replaced while it was read, expected version ${expected}, got ${actual}`;
  return new BlobError({ source, reason: 'changed', message });
}

const reasonsOfStatuses: Readonly<Record<number, BlobErrorReason>> = {
  401: 'denied',
  403: 'denied',
  404: 'missing',
  410: 'missing',
};

/** The reason that an HTTP status indicates. */
export function reasonOfStatus(status: number): BlobErrorReason {
  return reasonsOfStatuses[status] ?? (isTransient(status) ? 'unavailable' : 'failed');
}
