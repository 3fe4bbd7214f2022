/** `winnow run --image` and `/image` of `winnow chat` on a tiny LLaVA with random weights. */
import { execFileSync } from 'node:child_process';
import {
  closeSync,
  constants,
  copyFileSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  write,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as engine from '@winnow/engine';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { completeLine } from '../src/chat/completion.js';
import { Conversation, type ConversationModel, type ReplyHost } from '../src/chat/conversation.js';
import { checkedMessages, savedMessage, withLatestImages } from '../src/chat/messages.js';
import { pathAndText } from '../src/chat/typed-path.js';
import { createFakeEngine } from './fake-engine.js';
import { runCli, TestHost, type CliRun } from './run-cli.js';

const packages = new URL('../../../packages/', import.meta.url);
const folder = fileURLToPath(new URL('engine/test/fixtures/images/llava', packages));
const [wide, tall] = ['wide.png', 'tall.jpg'].map((name) =>
  fileURLToPath(new URL(`vision/src/__fixtures__/${name}`, packages)),
) as [string, string];
const files = [wide, tall].map((path) => new Uint8Array(readFileSync(path)));
const text = 'a picture of the sea';
const [content, images] = [`<image> ${text}`, files.slice(0, 1)];

test.each<[string, string[], engine.Prompt]>([
  [
    'a text that lacks tokens of images',
    ['-p', text, '--image', tall],
    { prompt: `<image>\n<image>\n${text}`, images: files },
  ],
  ['a text with the token of its image', ['-p', content], { prompt: content, images }],
  ['a message', ['-p', text, '--chat'], [{ role: 'user', content: text, images }]],
])('%s is continued as by the engine', async (_name, flags, prompt) => {
  const common = ['run', folder, '-t', '1', '--image', wide, '-n', '4', '--temp', '0', '--ignore-eos', '--json'];
  const run = await runCli(engine, [...common, ...flags]);
  expect(run).toMatchObject({ code: 0, stderr: '' });
  await using model = await engine.loadModel(folder, { threads: 1 });
  const { tokens, promptTokens } = await model
    .generate(prompt, { maxTokens: 4, temperature: 0, ignoreEos: true })
    .result();
  expect(JSON.parse(run.stdout)).toMatchObject({ tokens, promptTokens });
});

test('a GGUF model takes its image encoder from a file, or none', async () => {
  const model = fileURLToPath(new URL('engine/test/fixtures/images/llava-gguf/model.gguf', packages));
  const flags = ['run', model, '-t', '1', '-p', `${text}`, '--image', wide, '-n', '1', '--json'];
  expect(await runCli(engine, flags)).toMatchObject({ code: 0 });
  expect(await runCli(engine, [...flags, '--no-mmproj'])).toMatchObject({ code: 2 });
  const fake = createFakeEngine();
  await runCli(fake.api, ['run', 'model.gguf', '-p', 'a', '--mmproj', 'b.gguf']);
  expect(fake.loads[0]?.options.mmproj).toBe('b.gguf');
});

test('images without a prompt, and files that do not exist, are refused before the model is loaded', async () => {
  const fake = createFakeEngine();
  const resumed = await runCli(fake.api, ['run', '--load-session', 'story', '--image', wide]);
  expect(resumed).toMatchObject({ code: 2, stderr: expect.stringContaining('--image: requires a prompt') as string });
  const missing = await runCli(fake.api, ['run', '-p', 'a', '--image', 'no.png']);
  expect(missing.stderr).toContain('no.png: no such file');
  expect(fake.loads).toEqual([]);
});

let scratch = '';
let spaced = '';
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), 'winnow-images-'));
  spaced = join(scratch, 'two words.png');
  copyFileSync(wide, spaced);
});
afterAll(() => rmSync(scratch, { recursive: true }));

const flags = ['chat', folder, '-t', '1', '-n', '4', '--temp', '0', '--ignore-eos'];
const chat = (lines: readonly string[], more: readonly string[] = []): Promise<CliRun> =>
  runCli(engine, [...flags, ...more], { stdin: lines.map((line) => `${line}\n`).join('') });

test('/image: images go with the next message, stay in the conversation, and are saved and loaded', async () => {
  const file = join(scratch, 'talk.json');
  const first = await chat([`/image "${spaced}"`, `/image ${tall} ${text}`, '/history', `/save ${file}`]);
  expect(first.code).toBe(0);
  expect(first.stderr).toContain(`attached ${spaced}; 1 image for the next message`);
  expect(first.stdout).toContain(`user (2 images): ${text}\n`);
  const question = { role: 'user', content: text, images: files };
  await using model = await engine.loadModel(folder, { threads: 1 });
  const options = { maxTokens: 4, temperature: 0, ignoreEos: true };
  const answer = await model.generate([question], options).result();
  expect(first.stdout).toContain(answer.text.trimEnd());
  const { messages } = JSON.parse(readFileSync(file, 'utf8')) as { readonly messages: unknown };
  expect(checkedMessages(messages, file)[0]).toEqual(question);
  const again = await chat([`/load ${file}`, '/regen', '/history']);
  expect(again).toMatchObject({ code: 0, stderr: '' });
  expect(again.stdout).toContain(first.stdout.slice(first.stdout.indexOf('user (')));
});

test('/image: a session keeps its images', async () => {
  const session = join(scratch, 'session');
  await chat([`/image ${wide} ${text}`], ['--save-session', session]);
  const again = await chat(['/history'], ['--load-session', session]);
  expect(again.stdout).toContain(`user (1 image): ${text}\n`);
});

test('/image: what cannot be attached is refused', async () => {
  const [note, huge] = [join(scratch, 'note.txt'), join(scratch, 'huge.png')];
  writeFileSync(note, 'no image');
  copyFileSync(wide, huge);
  truncateSync(huge, 2 ** 26 + 1);
  const refused = async (line: string, code: number, message: string): Promise<void> => {
    const run = await chat([line]);
    expect(run).toMatchObject({ code, stderr: expect.stringContaining(message) as string });
  };
  await refused('/image missing.png', 1, 'missing.png: no such file');
  await refused(`/image ${note} what is this?`, 3, `${note}: format: expected a PNG, JPEG or WebP file`);
  await refused(`/image ${huge}`, 1, `${huge}: more than 64 MiB`);
  await refused('/image "" text', 2, '/image: expected a file name, got none');
});

test.skipIf(process.platform === 'win32')('/image: Ctrl-C stops reading a file that does not end', async () => {
  const pipe = join(scratch, 'pipe.png');
  execFileSync('mkfifo', [pipe]);
  const host = new TestHost(engine, { stdin: `/image ${pipe}\n/history\n` });
  const ended = host.run(flags);
  const writer = await openWriter(pipe);
  host.interrupt();
  const timer = setInterval(() => void write(writer, 'x', () => {}), 10);
  try {
    expect(await ended).toMatchObject({ code: 0, stderr: expect.stringContaining('stopped') as string });
  } finally {
    clearInterval(timer);
    closeSync(writer);
  }
});

/** Waits until somebody reads the pipe. */
async function openWriter(pipe: string): Promise<number> {
  for (;;) {
    try {
      return openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENXIO') throw error;
      await sleep(10);
    }
  }
}

test('/image: one that exceeds the context is an error, and what no message follows is not sent', async () => {
  const full = await chat([`/image ${wide} ${text}`], ['-c', '4']);
  expect(full).toMatchObject({ code: 4, stderr: expect.stringContaining('context') as string });
  const unsent = await chat([`/image ${wide}`, `/image ${tall}`]);
  expect(unsent.stderr).toContain('2 images not sent: no message followed');
  const detached = await chat([`/image ${wide}`, '/image']);
  expect(detached.stderr).not.toContain('not sent');
});

test('/image: a model that takes none refuses them, also those of a loaded conversation', async () => {
  const { api, prompts } = createFakeEngine();
  const attached = await runCli(api, ['chat'], { stdin: `/image ${wide} a\n` });
  const expected = '/image: expected a model that takes images, got winnow-tiny, which takes none';
  expect(attached).toMatchObject({ code: 2, stderr: `winnow: ${expected}\n` });
  const file = join(scratch, 'with-images.json');
  writeFileSync(file, JSON.stringify({ messages: [savedMessage({ role: 'user', content: 'a', images })] }));
  const loaded = await runCli(api, ['chat'], { stdin: `/load ${file}\nb\n` });
  expect(loaded).toMatchObject({ code: 2, stderr: expect.stringContaining('conversation with 1 image') as string });
  expect(prompts).toEqual([]);
});

test('/image: a message that fails leaves its images attached', async () => {
  const takesNone = { model: { imageToken: undefined }, name: 'text' } as unknown as ConversationModel;
  const conversation = new Conversation(takesNone, {
    ...{ limits: {}, reasoning: {}, toolbox: undefined, toolChoice: undefined, seed: 1, system: undefined },
  });
  conversation.attachedImages = files;
  await expect(conversation.say('a', {} as ReplyHost)).rejects.toThrow('got text, which takes none');
  expect([conversation.messages, conversation.attachedImages]).toEqual([[], files]);
});

test('/image: Tab completes the path with escaped spaces, until text follows', () => {
  const complete = (line: string): readonly string[] =>
    completeLine(line, [], { withFile: new Set(['load']), withFileAndText: new Set(['image']) })[0];
  const escaped = spaced.replace(' ', '\\ ');
  expect(complete(`/image ${join(scratch, 'two')}`)).toEqual([escaped]);
  expect(complete(`/image ${escaped.slice(0, -5)}`)).toEqual([escaped]);
  expect(complete(`/image ${wide} t`)).toEqual([]);
  expect(complete(`/load ${join(scratch, 'two w')}`)).toEqual([spaced]);
  expect(pathAndText(`${escaped}  what is\nthis?`)).toEqual({ path: spaced, text: 'what is\nthis?' });
  expect(pathAndText("'a b' c")).toEqual({ path: 'a b', text: 'c' });
});

test('a session drops the oldest images that exceed its room; files with other images are no conversation', () => {
  const message = (...sizes: number[]): engine.ChatMessage => ({
    ...{ role: 'user', content: 'a' },
    images: sizes.map((size) => new Uint8Array(size)),
  });
  const kept = withLatestImages([message(1), message(8, 4), message(3)], 8);
  expect(kept).toEqual({ messages: [{ role: 'user', content: 'a' }, message(4), message(3)], numDropped: 2 });
  const wrong = [{ role: 'user', content: 'a', images: ['AQID'] }];
  expect(() => checkedMessages(wrong, 'talk.json')).toThrow(
    /talk\.json: messages\[0\]\.images: expected a list of PNG/,
  );
});
