/** Writes several files that appear together or not at all. */
import type { ByteSink, StoredTensor } from '@winnow/bytes';
import type { WriteProgress } from './conversion.js';

/** Destination of the files: a file must not become visible before its sink is closed. */
export interface ConvertTarget {
  /** @param name name of the file, relative to the target */
  open(name: string): Promise<ByteSink>;
  /** Called when all files are complete, before the first becomes visible. The first name becomes visible last. */
  beforeVisible?(names: readonly string[]): Promise<void>;
}

/** Number of bytes read and written at a time. */
const chunkBytes = 4 * 1024 * 1024;

export interface FileSet {
  /** A sink whose `close` only marks it as complete. */
  open(name: string): Promise<ByteSink>;
  readonly names: readonly string[];
}

/** Runs `write`, then makes all files visible; after a failure none of them exists. */
export async function writeTogether<T>(target: ConvertTarget, write: (files: FileSet) => Promise<T>): Promise<T> {
  const sinks: ByteSink[] = [];
  const names: string[] = [];
  try {
    const result = await write({
      names,
      async open(name) {
        const sink = await target.open(name);
        sinks.push(sink);
        names.push(name);
        return {
          name: sink.name,
          get sizeBytes() {
            return sink.sizeBytes;
          },
          write: (bytes, byteOffset) => sink.write(bytes, byteOffset),
          close: async () => undefined,
          abort: () => sink.abort(),
        };
      },
    });
    await target.beforeVisible?.(names);
    for (const sink of sinks.toReversed()) await sink.close();
    return result;
  } catch (error) {
    for (const sink of sinks) await sink.abort();
    throw error;
  }
}

/** The bytes of a tensor in pieces; each counts as written when the next one is requested. */
export async function* piecesOf(
  tensor: StoredTensor,
  progress: WriteProgress,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  const buffer = new Uint8Array(Math.min(chunkBytes, tensor.sizeBytes));
  for (let byteOffset = 0; byteOffset < tensor.sizeBytes; byteOffset += buffer.length) {
    signal?.throwIfAborted();
    const piece = buffer.subarray(0, Math.min(buffer.length, tensor.sizeBytes - byteOffset));
    await tensor.read(piece, signal === undefined ? { byteOffset } : { byteOffset, signal });
    yield piece;
    progress.add(piece.length);
  }
}

/** Groups of consecutive tensors of at most `limit` bytes, with at least one tensor each. */
export function splitBySize(tensors: readonly StoredTensor[], limit: number): StoredTensor[][] {
  const parts: StoredTensor[][] = [];
  let size = 0;
  for (const tensor of tensors) {
    if (parts.length === 0 || size + tensor.sizeBytes > limit) {
      parts.push([]);
      size = 0;
    }
    (parts.at(-1) as StoredTensor[]).push(tensor);
    size += tensor.sizeBytes;
  }
  return parts;
}
