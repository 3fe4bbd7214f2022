/** Lines of a stream of bytes, one at a time in memory. */
import { isUtf8 } from 'node:buffer';

export interface Line {
  /** From 1; empty lines count, and are left out. */
  readonly number: number;
  readonly text: string;
  /** Why it is not a line of text, if it is not: it is too long, or not UTF-8. Then the text is empty. */
  readonly problem?: string;
}

const lineFeed = 0x0a;

/** @param maxBytes of a line */
export async function* splitLines(
  chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  maxBytes: number,
): AsyncGenerator<Line, void, void> {
  const parts: Uint8Array[] = [];
  let [number, sizeBytes] = [0, 0];
  const add = (bytes: Uint8Array): void => {
    sizeBytes += bytes.byteLength;
    if (sizeBytes <= maxBytes) parts.push(bytes.slice()); // the caller may reuse its buffer
  };
  const end = (): Line | undefined => {
    number++;
    const bytes = Buffer.concat(parts.splice(0));
    const isTooLong = sizeBytes > maxBytes;
    sizeBytes = 0;
    if (isTooLong) return { number, text: '', problem: `expected at most ${maxBytes} bytes` };
    if (!isUtf8(bytes)) return { number, text: '', problem: 'expected UTF-8' };
    const text = bytes.toString('utf8').trim();
    return text === '' ? undefined : { number, text };
  };
  for await (const chunk of chunks) {
    let begin = 0;
    for (let feed = chunk.indexOf(lineFeed); feed >= 0; feed = chunk.indexOf(lineFeed, begin)) {
      add(chunk.subarray(begin, feed));
      begin = feed + 1;
      const line = end();
      if (line !== undefined) yield line;
    }
    add(chunk.subarray(begin));
  }
  if (sizeBytes === 0) return;
  const line = end();
  if (line !== undefined) yield line;
}
