/** Reads text from flags, files and stdin. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
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

/** Texts of a flag, or the lines of a file. */
export interface LineSource {
  readonly flagName: string;
  /** What the texts are, for errors. */
  readonly noun: string;
  readonly given: readonly string[] | undefined;
  readonly file: string | undefined;
}

/** Those of the flag, or the lines of the file or of stdin. @throws {UsageError} for two sources, or none */
export async function readLines(
  io: CliIo,
  { flagName, noun, given, file }: LineSource,
  signal: AbortSignal,
): Promise<readonly string[]> {
  if (given !== undefined && file !== undefined) {
    throw new UsageError(`${flagName}: expected one source of ${noun}, got ${flagName} and --file`);
  }
  if (given !== undefined) return given;
  const text = await readText(io, file === undefined ? {} : { file }, signal);
  if (text === undefined) {
    throw new UsageError(`${flagName}: expected ${noun} from ${flagName}, --file or stdin, got none`);
  }
  return text === '' ? [] : text.split(/\r?\n/);
}

/** SHA-256 of a file, which identifies its content. @throws {IoError} when it is not a file */
export async function hashOfFile(path: string, expected: string, signal: AbortSignal): Promise<string> {
  const found = await stat(path).catch(() => undefined);
  if (found?.isFile() !== true) throw new IoError({ source: path, message: `expected ${expected}` });
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path, { signal })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

/**
 * The lines of a file of any size. A line feed at the end ends the last line.
 * @throws {UsageError} for bytes that are not UTF-8
 */
export async function* linesOfFile(path: string, signal: AbortSignal): AsyncGenerator<string, void, void> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const decode = (bytes?: Uint8Array): string => {
    try {
      return decoder.decode(bytes, { stream: bytes !== undefined });
    } catch (cause) {
      throw new UsageError(`${path}: expected UTF-8 text, got other bytes`, { cause });
    }
  };
  const withoutReturn = (line: string): string => (line.endsWith('\r') ? line.slice(0, -1) : line);
  let rest = '';
  for await (const chunk of createReadStream(path, { signal })) {
    const lines = (rest + decode(chunk as Buffer)).split('\n');
    rest = lines.pop() ?? '';
    yield* lines.map(withoutReturn);
  }
  rest += decode();
  if (rest !== '') yield rest;
}

/** Larger than any prompt that a model can process; a device such as `/dev/zero` has no end. */
const maxTextBytes = 256 * 1024 * 1024;

/** @throws {IoError} when the file cannot be read or has more than `maxBytes` */
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
    if (numBytes > maxBytes) throw new IoError({ source, message: `more than ${maxBytes / 2 ** 20} MiB` });
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
