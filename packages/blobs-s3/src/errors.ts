/** Converts errors of the S3 client to errors of blob stores. */
import { BlobError, existingBlob, missingBlob, reasonOfStatus, type BlobErrorReason } from '@winnow/jobs';
import { WinnowError } from '@winnow/tensor';

/** Reasons by error codes of the S3 API. */
const reasonsOfCodes: Readonly<Record<string, BlobErrorReason>> = {
  NoSuchKey: 'missing',
  NotFound: 'missing',
  NoSuchUpload: 'expired',
  BadDigest: 'checksum',
  InvalidDigest: 'checksum',
  XAmzContentSHA256Mismatch: 'checksum',
  InvalidPart: 'checksum',
  ConditionalRequestConflict: 'exists',
};

interface ClientError extends Error {
  readonly $metadata?: { readonly httpStatusCode?: number };
}

/** @param source URL of the object @param signal signal of the call, whose reason is thrown unchanged */
export function s3Error(error: unknown, source: string, what: string, signal?: AbortSignal): unknown {
  if (signal?.aborted === true) return signal.reason;
  if (WinnowError.isInstance(error) || !(error instanceof Error)) return error;
  const { name, message, $metadata } = error as ClientError;
  const status = $metadata?.httpStatusCode;
  const reason = reasonsOfCodes[name] ?? (status === undefined ? 'unavailable' : reasonOfStatus(status));
  if (reason === 'missing' && name !== 'NoSuchBucket') return missingBlob(source);
  if (reason === 'exists' || (status === 412 && what === 'write')) return existingBlob(source);
  const detail = `${name}${status === undefined ? '' : ` (status ${status})`}: ${message}`;
  const hint = reason === 'expired' ? '; write it again' : '';
  return new BlobError({ source, reason, message: `${what} failed: ${detail}${hint}` }, { cause: error });
}
