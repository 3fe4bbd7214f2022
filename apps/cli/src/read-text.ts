/** Reads text from flags, files and stdin. */
import { readFile } from 'node:fs/promises';
import { IoError } from '@winnow/tensor';
import { UsageError } from './errors.js';
import type { CliIo } from './io.js';
import type { TextFlags } from './flags/load.js';

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

async function readBytesOf(path: string, signal: AbortSignal): Promise<Uint8Array> {
  try {
    return await readFile(path, { signal });
  } catch (cause) {
    signal.throwIfAborted();
    const code = (cause as NodeJS.ErrnoException).code;
    const reasons: Readonly<Record<string, string>> = { ENOENT: 'no such file', EISDIR: 'a folder, not a file' };
    throw new IoError({ source: path, message: reasons[code ?? ''] ?? `cannot be read (${code})` }, { cause });
  }
}

export async function readStdin(io: CliIo, signal: AbortSignal): Promise<string> {
  const chunks: Uint8Array[] = [];
  const onAbort = (): void => {
    io.stdin.destroy(signal.reason as Error);
  };
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    for await (const chunk of io.stdin)
      chunks.push(typeof chunk === 'string' ? Buffer.from(chunk) : (chunk as Uint8Array));
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
  return decodeUtf8(Buffer.concat(chunks), 'stdin');
}

function decodeUtf8(bytes: Uint8Array, source: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new UsageError(`${source}: expected UTF-8 text, got other bytes`, { cause });
  }
}

function withoutLineEnd(text: string): string {
  return text.replace(/\r?\n$/, '');
}
