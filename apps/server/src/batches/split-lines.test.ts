import { expect, test } from 'vitest';
import { splitLines, type Line } from './split-lines.js';

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

async function linesOf(chunks: readonly Uint8Array[], maxBytes = 1000): Promise<Line[]> {
  const lines: Line[] = [];
  for await (const line of splitLines(chunks, maxBytes)) lines.push(line);
  return lines;
}

test('lines are the same however the bytes are cut', async () => {
  const bytes = encode('first\r\n\n  \nünïcode 🌊\nlast');
  const expected = [
    { number: 1, text: 'first' },
    { number: 4, text: 'ünïcode 🌊' },
    { number: 5, text: 'last' },
  ];
  for (let size = 1; size <= bytes.byteLength; size++) {
    const chunks: Uint8Array[] = [];
    for (let begin = 0; begin < bytes.byteLength; begin += size) chunks.push(bytes.subarray(begin, begin + size));
    expect(await linesOf(chunks)).toEqual(expected);
  }
});

test('a buffer that is used again does not change the lines', async () => {
  const buffer = new Uint8Array(4);
  function* chunks(): Generator<Uint8Array, void, void> {
    for (const text of ['ab', 'cd\n', 'ef\n'])
      yield buffer.subarray(0, new TextEncoder().encodeInto(text, buffer).written);
  }
  const lines: string[] = [];
  for await (const { text } of splitLines(chunks(), 100)) lines.push(text);
  expect(lines).toEqual(['abcd', 'ef']);
});

test('lines that are too long or not UTF-8 are reported, and the others are read', async () => {
  const long = encode(`${'x'.repeat(30)}\n`);
  const chunks = [encode('a\n'), long.subarray(0, 12), long.subarray(12), Uint8Array.of(0xff, 0x0a), encode('b\n')];
  expect(await linesOf(chunks, 29)).toEqual([
    { number: 1, text: 'a' },
    { number: 2, text: '', problem: 'expected at most 29 bytes' },
    { number: 3, text: '', problem: 'expected UTF-8' },
    { number: 4, text: 'b' },
  ]);
  expect((await linesOf([long], 30)).map(({ text }) => text.length)).toEqual([30]);
});
