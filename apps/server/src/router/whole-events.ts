/** Cuts a stream of bytes into whole events or lines, so that another event can follow at any time. */

export type EventSyntax = 'events' | 'lines';

/** Larger events are passed on in pieces; if the server is lost within one, no error event can follow it. */
const maxHeldBytes = 4 * 2 ** 20;
const separators: Readonly<Record<EventSyntax, readonly string[]>> = { events: ['\n\n', '\r\n\r\n'], lines: ['\n'] };

/** @throws the error of the source, after all whole events before it */
export async function* wholeEvents(
  source: AsyncIterable<Buffer>,
  syntax: EventSyntax,
): AsyncGenerator<Buffer, void, void> {
  let held: Buffer | undefined;
  for await (const chunk of source) {
    const bytes = held === undefined ? chunk : Buffer.concat([held, chunk]);
    const end = endOfEvents(bytes, syntax);
    held = end === bytes.byteLength ? undefined : bytes.subarray(end);
    if (end > 0) yield bytes.subarray(0, end);
    if (held === undefined || held.byteLength <= maxHeldBytes) continue;
    yield held;
    held = undefined;
  }
  if (held !== undefined) yield held;
}

function endOfEvents(bytes: Buffer, syntax: EventSyntax): number {
  const ends = separators[syntax].map((separator) => {
    const begin = bytes.lastIndexOf(separator);
    return begin < 0 ? 0 : begin + separator.length;
  });
  return Math.max(...ends);
}

/** Whether there is more than comments and white space, which only keep a connection alive. */
export function hasData(bytes: Buffer, syntax: EventSyntax): boolean {
  if (bytes.byteLength > 256) return true;
  const lines = bytes.toString('latin1').split(/\r?\n/);
  return lines.some((line) => line.trim() !== '' && (syntax === 'lines' || !line.startsWith(':')));
}
