/** What can go wrong between a repository and the disk. */
import { IoError, WinnowError } from '@winnow/tensor';

/** Kinds of failures. */
export type HubErrorReason =
  /** No such repository, revision or file. The hub also says this of private ones. */
  | 'not-found'
  /** The hub requires an access token, or the token is wrong. */
  | 'unauthorized'
  /** The owner lets only people in who asked for access. */
  | 'gated'
  /** Offline, and the cache does not have it (all). `files` says what is missing. */
  | 'not-cached'
  /** The hub answered, but not with what it should (rate limit, an error of its own, a malformed answer). */
  | 'server'
  /** The hub could not be reached, or the connection was cut more often than it is worth trying. */
  | 'network'
  /** What arrived is not what the hub announced. */
  | 'corrupt'
  /** The cache folder cannot be read or written: full, read-only, not a folder. */
  | 'disk';

/** A download failed. */
export class HubError extends IoError {
  readonly reason: HubErrorReason;
  /** HTTP status, where the hub answered. */
  readonly statusCode: number | undefined;
  /** The files concerned, where that is known. */
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
  EEXIST: 'a file is in the way',
  EISDIR: 'a folder is in the way',
  ENOENT: 'no such file or folder',
  ENAMETOOLONG: 'the name is too long',
};

/** Errors of the file system, and `IoError`s because of one, as `HubError`; others of Winnow's own pass unchanged. */
export function diskError(path: string, error: unknown): unknown {
  const ofSystem = WinnowError.isInstance(error) && !(error instanceof HubError) ? error.cause : error;
  if (WinnowError.isInstance(ofSystem) || !(ofSystem instanceof Error) || !('syscall' in ofSystem)) return error;
  const code = 'code' in ofSystem ? String(ofSystem.code) : '';
  const message = `${diskReasons[code] ?? ofSystem.message}${code === '' ? '' : ` (${code})`}`;
  return new HubError({ source: path, reason: 'disk', message }, { cause: error });
}

/** Runs `action` with its file system errors as `HubError`. */
export async function onDisk<T>(path: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    throw diskError(path, error);
  }
}
