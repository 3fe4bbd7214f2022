/** Processes that end inside kernels: after two of them the addon is rejected; other ends do not count. */
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { once } from 'node:events';
import { sourceArguments } from '@winnow/test-utils';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openNative } from '../src/index.node.js';

const folder = mkdtempSync(join(tmpdir(), 'winnow-crashes-'));
afterAll(() => rmSync(folder, { recursive: true }));

const path = join(folder, 'addon.cjs');
writeFileSync(path, `module.exports = { levels: () => ['avx2'], selfTest: () => true, attach: () => ({}) };`);
const changed = join(folder, 'changed.cjs');
writeFileSync(changed, `module.exports = { levels: () => ['avx2'], selfTest: () => true, attach: () => 1 };`);

/** A process that opens the addon, and enters, leaves and ends as its arguments say. */
const script = join(folder, 'process.mjs');
const module = new URL('../src/open.node.ts', import.meta.url).href;
writeFileSync(
  script,
  `
import { openNative } from ${JSON.stringify(module)};
const [path, cacheFolder, ...steps] = process.argv.slice(2);
const { kernels, refusal } = await openNative('auto', { path, cacheFolder });
console.log(refusal ?? kernels.level);
const leaves = [];
for (const step of steps) {
  if (step === 'enter') leaves.push(kernels.enter());
  if (step === 'leave') leaves.pop()();
  if (step === 'leave-twice') leaves.map((leave) => (leave(), leave()));
  if (step === 'abort') process.abort();
  if (step === 'kill') process.kill(process.pid, 'SIGKILL');
  if (step === 'exit') process.exit();
  if (step === 'wait') await new Promise((resolve) => process.stdin.once('data', resolve));
  if (step === 'throw') throw new Error('of the program');
}
`,
);

/** Verdicts of both addons, so that no test starts a trial. */
const verdicts = join(folder, 'verdicts');
beforeAll(async () => {
  for (const each of [path, changed]) {
    expect((await openNative('auto', { path: each, cacheFolder: verdicts })).kernels?.level).toBe('avx2');
  }
});

let cacheFolder = '';
beforeEach(() => {
  cacheFolder = mkdtempSync(join(folder, 'cache-'));
  cpSync(verdicts, cacheFolder, { recursive: true });
});

/** The output of a process with these steps after it has opened the addon. */
function run(steps: string): string {
  const argv = [...sourceArguments, script, path, cacheFolder, ...steps.split(' ')];
  return spawnSync(process.execPath, argv, { encoding: 'utf8' }).stdout.trim();
}

const files = (ending: string): string[] => readdirSync(cacheFolder).filter((name) => name.endsWith(ending));
const refused = expect.stringMatching(/^the addon .* 2 processes ended inside its kernels; delete .*\.death to try/);

describe('an addon is refused', () => {
  it.each([
    ['it aborts', 'enter abort', 'enter abort'],
    ['it hangs and is killed', 'enter kill', 'enter kill'],
    ['it ends the process in a later run', 'enter leave enter abort', 'enter leave enter abort'],
    ['one of two runs at a time has returned', 'enter enter leave abort', 'enter enter leave-twice enter enter kill'],
  ])('when %s, twice', async (_name, first, second) => {
    expect([run(first), run(second)]).toEqual(['avx2', 'avx2']);
    expect((await openNative('auto', { path, cacheFolder })).refusal).toEqual(refused);
    expect((await openNative('avx2', { path, cacheFolder })).kernels).toBeUndefined();
    for (const file of files('.death')) rmSync(join(cacheFolder, file));
    expect((await openNative('auto', { path, cacheFolder })).kernels?.level).toBe('avx2');
  });

  it('until it changes', async () => {
    for (let round = 0; round < 2; round++) run('enter abort');
    expect(run('enter leave exit')).toEqual(refused);
    expect((await openNative('auto', { path: changed, cacheFolder })).kernels?.level).toBe('avx2');
    expect((await openNative('auto', { path, cacheFolder })).refusal).toEqual(refused);
  });
});

describe('no death', () => {
  it.each(['kill', 'enter exit', 'enter throw', 'enter leave kill', 'enter leave-twice enter leave abort'])(
    '%s',
    async (steps) => {
      expect(run(steps)).toBe('avx2');
      expect((await openNative('auto', { path, cacheFolder })).kernels?.level).toBe('avx2');
      expect([files('.death'), files('.in-use')]).toEqual([[], []]);
    },
  );

  it('is left of an earlier one when a process has used the kernels and ended properly', async () => {
    run('enter kill');
    run('exit'); // it has not used them
    expect(files('.death')).toHaveLength(1);
    run('enter leave exit');
    expect(files('.death')).toEqual([]);
    run('enter kill');
    expect((await openNative('auto', { path, cacheFolder })).kernels?.level).toBe('avx2');
  });

  it('is a process that is still inside', async () => {
    const argv = [...sourceArguments, script, path, cacheFolder, 'enter', 'wait', 'leave', 'exit'];
    const child = spawn(process.execPath, argv, { stdio: ['pipe', 'pipe', 'inherit'] });
    await once(child.stdout, 'data');
    while (files('.in-use').length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    for (let round = 0; round < 2; round++) await openNative('auto', { path, cacheFolder });
    expect([files('.death').length, files('.in-use').length]).toEqual([0, 1]);
    child.stdin.end('go');
    await once(child, 'exit');
    expect(files('.in-use')).toEqual([]);
  });

  it('is a file of another machine, or a damaged one', async () => {
    run('enter kill');
    const [file = ''] = files('.in-use');
    for (const text of [JSON.stringify({ machine: 'other', pid: 1, start: '' }), '{']) {
      writeFileSync(join(cacheFolder, file), text);
      await openNative('auto', { path, cacheFolder });
      expect(files('.death')).toEqual([]);
    }
  });
});

it('where nothing can be written, kernels are used without a record', async () => {
  const blocked = join(folder, 'blocked');
  writeFileSync(blocked, '');
  const { kernels } = await openNative('auto', { path, cacheFolder: blocked });
  kernels?.enter()();
  expect(kernels?.level).toBe('avx2');
});

it('a trial that hangs counts as failed, and is not repeated', async () => {
  const hanging = join(folder, 'hanging.cjs');
  writeFileSync(hanging, `module.exports = { levels() { for (;;); } };`);
  const first = await openNative('auto', { path: hanging, cacheFolder, timeout: 300 });
  expect(first.refusal).toContain('its trial hung for 0.3 s');
  // with the default timeout a second trial would outlast the test
  expect(await openNative('auto', { path: hanging, cacheFolder })).toEqual(first);
});
