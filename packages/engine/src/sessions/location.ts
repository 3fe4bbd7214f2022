/** Where sessions are saved to and restored from. The host opens paths. */
import { blobSource, type ByteSink, type ByteSource } from '@winnow/bytes';
import { ArgumentError } from '@winnow/tensor';

/** A path (in browsers, of the page's origin), which is replaced atomically, or an open sink, which is closed. */
export type SessionTarget = string | URL | ByteSink;

/** A path (in browsers, of the page's origin), a Blob, or an open file, which is closed. */
export type SessionSource = string | URL | Blob | ByteSource;

/** The files of the host. */
export interface SessionFiles {
  openSink(path: string | URL): Promise<ByteSink>;
  openSource(path: string | URL): Promise<ByteSource>;
}

function refuse(expected: string): (path: string | URL) => Promise<never> {
  return (path) => Promise.reject(new ArgumentError({ argument: 'location', expected, actual: String(path) }));
}

/** For hosts without a file system. */
export const noSessionFiles: SessionFiles = {
  openSink: refuse('an open sink'),
  openSource: refuse('a Blob or an open file'),
};

export async function openSessionTarget(target: SessionTarget, files: SessionFiles): Promise<ByteSink> {
  return typeof target === 'string' || target instanceof URL ? files.openSink(target) : target;
}

export async function openSessionSource(source: SessionSource, files: SessionFiles): Promise<ByteSource> {
  if (typeof source === 'string' || source instanceof URL) return files.openSource(source);
  return source instanceof Blob ? blobSource(source) : source;
}
