/** Errors of downloading a repository. */
import { IoError, WinnowError } from '@winnow/tensor';

/** Causes of failures. */
export type HubErrorReason =
  /** No such repository, revision or file. The hub also reports this for private ones. */
  | 'not-found'
  /** The hub requires an access token, or the token is wrong. */
  | 'unauthorized'
  /** The repository is gated: access must be requested from its owner. */
  | 'gated'
  /** Offline, and the cache is missing files, which `files` lists. */
  | 'not-cached'
  /** The hub returned an error or a malformed response (rate limit, server error). */
  | 'server'
  /** The hub could not be reached, or the connection was lost more often than the retry limit. */
  | 'network'
  /** The downloaded content does not match the announced size or hash. */
  | 'corrupt'
  /** The cache folder cannot be read or written: full, read-only, not a folder. */
  | 'disk';

/** A download failed. */
export class HubError extends IoError {
  override readonly name: string = 'HubError';
  readonly reason: HubErrorReason;
  /** HTTP status, if the hub responded. */
  readonly statusCode: number | undefined;
  /** The affected files, if known. */
  readonly files: readonly string[];

  constructor(
    fields: { source: string; reason: HubErrorReason; message: string; statusCode?: number; files?: readonly string[] },
    options?: { cause?: unknown },
  ) {
    super({ source: fields.source, message: fields.message }, options);
    this.reason = fields.reason;
    this.statusCode = fields.statusCode;
    this.files = fields.files ?? [];
  }
}

const diskReasons: Readonly<Record<string, string>> = {
  ENOSPC: 'no space left on the device',
  EDQUOT: 'disk quota exceeded',
  EROFS: 'read-only file system',
  EACCES: 'permission denied',
  EPERM: 'operation not permitted',
  ENOTDIR: 'a part of the path is not a folder',
  EEXIST: 'a file of that name exists',
  EISDIR: 'a folder of that name exists',
  ENOENT: 'no such file or folder',
  ENAMETOOLONG: 'the name is too long',
};

/** Wraps file system errors, and `IoError`s caused by one, as `HubError`; other errors of Winnow pass unchanged. */
function diskError(path: string, error: unknown): unknown {
  const ofSystem = WinnowError.isInstance(error) && !(error instanceof HubError) ? error.cause : error;
  if (WinnowError.isInstance(ofSystem) || !(ofSystem instanceof Error) || !('syscall' in ofSystem)) return error;
  const code = 'code' in ofSystem ? String(ofSystem.code) : '';
  const message = `${diskReasons[code] ?? ofSystem.message}${code === '' ? '' : ` (${code})`}`;
  return new HubError({ source: path, reason: 'disk', message }, { cause: error });
}

/** Runs `action` and rethrows its file system errors as `HubError`. */
export async function onDisk<T>(path: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    throw diskError(path, error);
  }
}
