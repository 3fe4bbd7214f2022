/** Converts file system errors to `IoError`. */
import { IoError, WinnowError } from '@winnow/tensor';

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or folder',
  EEXIST: 'the file already exists, expected none',
  EACCES: 'permission denied',
  EPERM: 'operation not permitted',
  EISDIR: 'is a folder, expected a file',
  ENOTDIR: 'a part of the path is not a folder',
  ENOSPC: 'no space left on the device',
  EDQUOT: 'disk quota exceeded',
  EROFS: 'read-only file system',
  EFBIG: 'too large for the file system',
  EMFILE: 'too many open files',
  ENAMETOOLONG: 'the name is too long',
  ELOOP: 'too many symbolic links',
};

export function fileError(path: string, error: unknown, byteOffset?: number): WinnowError {
  if (WinnowError.isInstance(error)) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : undefined;
  const text = error instanceof Error ? error.message : String(error);
  const message = code === undefined ? text : `${reasons[code] ?? text} (${code})`;
  return new IoError({ source: path, message, ...(byteOffset === undefined ? {} : { byteOffset }) }, { cause: error });
}
