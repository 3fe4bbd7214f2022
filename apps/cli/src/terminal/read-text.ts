/** Reads text from flags, files and stdin. */
import { createReadStream } from 'node:fs';
import { IoError } from '@winnow/tensor';
import { UsageError } from '../errors/errors.js';
import type { CliIo } from './io.js';

/** Flags for the text of a command. */
export interface TextFlags {
  readonly prompt?: string;
  readonly file?: string;
}

/** The text of `-p`, of `-f`, or of stdin when it is not a terminal; undefined when there is none. */
export async function readText(
  io: CliIo,
  { prompt, file }: TextFlags,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (prompt !== undefined && file !== undefined) {
    throw new UsageError('--prompt: expected one source of text, got --prompt and --file');
  }
  if (prompt !== undefined) return prompt;
  if (file !== undefined && file !== '-') return withoutLineEnd(decodeUtf8(await readBytesOf(file, signal), file));
  if (file === undefined && io.stdin.isTTY === true) return undefined;
  return withoutLineEnd(await readStdin(io, signal));
}

/** Larger than any prompt that a model can process; a device such as `/dev/zero` has no end. */
const maxTextBytes = 256 * 1024 * 1024;

/** @throws {IoError} when the file cannot be read or is larger than any text */
export async function readBytesOf(
  path: string,
  signal?: AbortSignal,
  maxBytes: number = maxTextBytes,
): Promise<Uint8Array> {
  const stream = createReadStream(path, { highWaterMark: 1024 * 1024 });
  const onAbort = (): void => void stream.destroy(signal?.reason as Error);
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    signal?.throwIfAborted();
    return await collect(stream, path, maxBytes);
  } catch (cause) {
    signal?.throwIfAborted();
    if (IoError.isInstance(cause)) throw cause;
    const code = (cause as NodeJS.ErrnoException).code;
    const reasons: Readonly<Record<string, string>> = { ENOENT: 'no such file', EISDIR: 'a folder, not a file' };
    throw new IoError({ source: path, message: reasons[code ?? ''] ?? `cannot be read (${code})` }, { cause });
  } finally {
    signal?.removeEventListener('abort', onAbort);
    stream.destroy();
  }
}

async function collect(
  stream: AsyncIterable<unknown>,
  source: string,
  maxBytes: number = maxTextBytes,
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let numBytes = 0;
  for await (const chunk of stream) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : (chunk as Uint8Array);
    numBytes += bytes.byteLength;
    if (numBytes > maxBytes) throw new IoError({ source, message: `more than ${maxBytes / 2 ** 20} MiB of text` });
    chunks.push(bytes);
  }
  return Buffer.concat(chunks);
}

export async function readStdin(io: CliIo, signal: AbortSignal): Promise<string> {
  const onAbort = (): void => {
    io.stdin.destroy(signal.reason as Error);
  };
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return decodeUtf8(await collect(io.stdin, 'stdin'), 'stdin');
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

export function decodeUtf8(bytes: Uint8Array, source: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new UsageError(`${source}: expected UTF-8 text, got other bytes`, { cause });
  }
}

function withoutLineEnd(text: string): string {
  return text.replace(/\r?\n$/, '');
}
