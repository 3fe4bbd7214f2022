/** `winnow run --image` on a tiny LLaVA with random weights. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as engine from '@winnow/engine';
import { expect, test } from 'vitest';
import { createFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

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

test('images without a prompt, and files that do not exist, are refused before the model is loaded', async () => {
  const fake = createFakeEngine();
  const resumed = await runCli(fake.api, ['run', '--load-session', 'story', '--image', wide]);
  expect(resumed).toMatchObject({ code: 2, stderr: expect.stringContaining('--image: requires a prompt') as string });
  const missing = await runCli(fake.api, ['run', '-p', 'a', '--image', 'no.png']);
  expect(missing.stderr).toContain('no.png: no such file');
  expect(fake.loads).toEqual([]);
});
