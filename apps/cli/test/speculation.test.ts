/** `--speculative` of `winnow run` on the demo model. */
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import { fastClock } from '@winnow/test-utils';
import { expect, test } from 'vitest';
import type { EngineApi } from '../src/terminal/io.js';
import { runCli } from './run-cli.js';

const timed: EngineApi = {
  ...engine,
  loadModel: (location, options) => engine.loadModel(location, { ...options, now: fastClock() }),
};

const verse = 'The old man looked at the sea, and the sea looked at the old man. ';

test('every kind of drafts gives the text of plain decoding, and the summary counts them', async () => {
  const run = (...flags: string[]) =>
    runCli(timed, ['run', '-t', '1', '-p', verse.repeat(4), '-n', '30', '--temperature', '0', '--summary', ...flags]);
  const plain = await run();
  expect(plain.stderr).not.toContain('drafted');
  const draftModel = fileURLToPath(new URL('.', demoModelUrl));
  for (const kind of ['lookup', 'auto', 'self=streaming:window=64,sinks=4', `draft=${draftModel}`]) {
    const { code, stdout, stderr } = await run('--speculative', kind);
    expect([code, stdout]).toEqual([0, plain.stdout]);
    const [, accepted, drafted] = /, (\d+) of (\d+) drafted tokens accepted\)/.exec(stderr) ?? [];
    expect(Number(drafted)).toBeGreaterThan(0);
    expect(Number(accepted)).toBeLessThanOrEqual(Number(drafted));
  }
  expect((await run('--speculative', 'guess')).stderr).toContain('--speculative: expected off');
});
