/** Reads messages of one or more lines. */
import type { LineReader } from '../terminal/line-reader.js';

/** Begins and ends a message of several lines. */
const quotes = '"""';

/**
 * One message: a line, continued on the next one while it ends with a backslash, or the lines between `"""` and `"""`.
 * Undefined at the end of the input.
 */
export async function readMessage(
  reader: Pick<LineReader, 'next'>,
  prompts: { readonly first: string; readonly more: string },
): Promise<string | undefined> {
  const first = await reader.next(prompts.first);
  if (first === undefined) return undefined;
  if (first.startsWith(quotes)) return readBlock(first.slice(quotes.length), reader, prompts.more);
  let message = first;
  while (message.endsWith('\\')) {
    const more = await reader.next(prompts.more);
    message = `${message.slice(0, -1)}\n${more ?? ''}`;
    if (more === undefined) break;
  }
  return message;
}

/** The lines of a block, of which the first and the last may be empty. The end of the input ends it, too. */
async function readBlock(start: string, reader: Pick<LineReader, 'next'>, prompt: string): Promise<string> {
  const lines: string[] = [];
  for (let line: string | undefined = start; line !== undefined; line = await reader.next(prompt)) {
    const text = line.trimEnd();
    if (text.endsWith(quotes)) {
      lines.push(text.slice(0, -quotes.length));
      break;
    }
    lines.push(line);
  }
  if (lines[0] === '') lines.shift();
  if (lines.at(-1) === '') lines.pop();
  return lines.join('\n');
}
