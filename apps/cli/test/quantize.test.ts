import { expect, test } from 'vitest';
import * as engine from '@winnow/engine';
import { createFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

test('--quantize is passed to the engine in canonical spelling', async () => {
  const fake = createFakeEngine();
  expect(await runCli(fake.api, ['run', '-p', 'Hi', '--quantize', 'Q4_k'])).toMatchObject({ code: 0 });
  expect(fake.loads[0]?.options).toMatchObject({ quantize: 'q4_K' });
});

test('dtypes without an encoder are rejected', async () => {
  const unknown = await runCli(createFakeEngine().api, ['run', '-p', 'Hi', '--quantize', 'q9']);
  expect(unknown).toMatchObject({ code: 2, stderr: expect.stringContaining('--quantize: expected a data type') });
  const unencodable = await runCli(engine, ['run', '-p', 'Hi', '--quantize', 'iq2_s']);
  expect(unencodable).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/--quantize: expected .*q4_K.*got iq2_s/),
  });
});

test('the demo model runs with quantized weights', async () => {
  const plain = await runCli(engine, ['inspect', '--json']);
  const quantized = await runCli(engine, [
    'run',
    '-p',
    'Once upon a time',
    '-n',
    '8',
    '--temperature',
    '0',
    '--quantize',
    'q8_0',
    '--json',
  ]);
  expect(quantized.code).toBe(0);
  expect(JSON.parse(quantized.stdout).tokens).toHaveLength(8);
  expect(plain.code).toBe(0);
});
