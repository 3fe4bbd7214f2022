import { PassThrough } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';
import { paintOf } from './colors.js';
import { MarkdownColors } from './markdown-colors.js';
import { Output } from './output.js';
import { ReplyView } from './reply-view.js';

function view(isTTY: boolean, env: Record<string, string> = {}) {
  const stream = Object.assign(new PassThrough({ encoding: 'utf8' }), { isTTY });
  const paint = paintOf(stream, env);
  const createMarkdown = isTTY ? () => new MarkdownColors(paint) : undefined;
  const reply = new ReplyView({ out: new Output(stream), label: 'model', paint, createMarkdown });
  return { reply, text: (): string => String(stream.read() ?? '') };
}

const noColors = { NO_COLOR: '1' };

test('a terminal shows reasoning dimmed, then the reply', async () => {
  const { reply, text } = view(true);
  for (const piece of ['Hm', ' so']) await reply.writeReasoning(piece);
  await reply.write('Yes.');
  await reply.end();
  const shown = text();
  expect(stripVTControlCharacters(shown)).toBe('model> Hm so\n\nYes.\n');
  expect(shown).toContain('\u001b[2mHm\u001b[22m');
});

test('without colors headings tell reasoning and reply apart', async () => {
  const { reply, text } = view(true, noColors);
  await reply.writeReasoning('Hm');
  await reply.write('**Yes.**');
  await reply.end();
  expect(text()).toBe('model> (reasoning)\nHm\n(answer)\n**Yes.**\n');
});

test('a pipe gets the text of the reply alone, and its control characters', async () => {
  const { reply, text } = view(false);
  await reply.writeReasoning('Hm');
  await reply.write('**Yes.**\u001b[2J\n');
  await reply.end();
  expect(text()).toBe('**Yes.**\u001b[2J\n');
});

test('control characters of a model are escapes on a terminal', async () => {
  const { reply, text } = view(true, noColors);
  await reply.writeReasoning('a\u001b[2J');
  await reply.write('```\n\u001b[2J\n');
  await reply.end();
  expect(text()).toBe('model> (reasoning)\na\\u001b[2J\n(answer)\n```\n\\u001b[2J\n');
});

test('an answer with calls and no text is no line; a reply without text is one', async () => {
  const { reply, text } = view(false);
  await reply.endText();
  expect(text()).toBe('');
  await reply.end();
  expect(text()).toBe('\n');
});
