import { expect, test } from 'vitest';
import { createFakeEngine } from './fake-engine.js';
import { runCli } from './run-cli.js';

test('adapters with and without a factor, in both spellings', async () => {
  const fake = createFakeEngine();
  const flags = ['--lora', 'a.gguf', '--lora-scaled', 'b.gguf', '-0.5', '--lora-scaled', 'c.gguf:2'];
  expect(await runCli(fake.api, ['run', '-p', 'Hi', ...flags])).toMatchObject({ code: 0 });
  expect(fake.loads[0]?.options).toMatchObject({
    lora: { adapters: [{ source: 'a.gguf' }, { source: 'b.gguf', scale: -0.5 }, { source: 'c.gguf', scale: 2 }] },
  });
});

test('a factor that is not a number is rejected', async () => {
  const refused = await runCli(createFakeEngine().api, ['run', '-p', 'Hi', '--lora-scaled', 'b.gguf:much']);
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('--lora-scaled: expected a number') });
});

test('--lora-mode merges adapters, and requires one', async () => {
  const fake = createFakeEngine();
  expect(await runCli(fake.api, ['run', '-p', 'Hi', '--lora', 'a.gguf', '--lora-mode', 'merge'])).toMatchObject({
    code: 0,
  });
  expect(fake.loads[0]?.options.lora).toEqual({ adapters: [{ source: 'a.gguf' }], mode: 'merge' });
  const alone = await runCli(fake.api, ['run', '-p', 'Hi', '--lora-mode', 'merge']);
  expect(alone).toMatchObject({ code: 2, stderr: 'winnow: --lora-mode: requires --lora or --lora-scaled\n' });
});
