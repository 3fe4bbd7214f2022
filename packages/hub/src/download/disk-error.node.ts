/** Errors of the file system as `HubError`s. */
import { WinnowError } from '@winnow/tensor';
import { HubError } from './error.js';

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
