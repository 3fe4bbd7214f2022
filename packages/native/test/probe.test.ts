/** Addons that cannot be used: they are tried once in a child process, and WebAssembly replaces them. */
import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { nativeLevels } from '../src/index.js';
import { choiceOfEnvironment, findAddon, openNative } from '../src/index.node.js';

const folder = mkdtempSync(join(tmpdir(), 'winnow-native-'));
const cacheFolder = join(folder, 'cache');
afterAll(() => rmSync(folder, { recursive: true }));

function verdicts(): string[] {
  return existsSync(cacheFolder) ? readdirSync(cacheFolder) : [];
}

describe('what WINNOW_NATIVE chooses', () => {
  it.each([
    [undefined, 'auto'],
    ['', 'auto'],
    ['auto', 'auto'],
    ['off', false],
    ['on', true],
    ['avx2', 'avx2'],
    ['avxvnni', 'avxvnni'],
    ['neon', 'neon'],
  ] as const)('%s: %s', (value, choice) => {
    vi.stubEnv('WINNOW_NATIVE', value);
    expect(choiceOfEnvironment()).toBe(choice);
  });

  it('names what is allowed', () => {
    expect(choiceOfEnvironment('sse9')).toEqual(
      new Error('WINNOW_NATIVE: expected off, on, auto, amx, avx512, avxvnni, avx2, i8mm, neon, got "sse9"'),
    );
  });
});

describe('addons that cannot be loaded', () => {
  it('a missing file is tried again', async () => {
    const path = join(folder, 'missing.node');
    const { kernels, refusal } = await openNative('auto', { path, cacheFolder });
    expect([kernels, refusal]).toEqual([undefined, expect.stringContaining('the addon cannot be read')]);
    expect(verdicts()).toEqual([]);
  });

  it('a file that is no addon has a verdict', async () => {
    const path = join(folder, 'text.node');
    writeFileSync(path, 'no addon');
    for (let round = 0; round < 2; round++) {
      const { refusal } = await openNative('auto', { path, cacheFolder });
      expect(refusal).toMatch(/its trial ended with code 1: Error: /);
    }
    expect(verdicts()).toHaveLength(1);
  });
});

/** A script in place of an addon; `isTrial` is true in the child process. */
function writeScript(name: string, body: string): string {
  const path = join(folder, name);
  const isTrial = `const isTrial = process.execArgv.includes('-e');`;
  writeFileSync(
    path,
    `${isTrial}\nmodule.exports = { levels() { ${body} }, selfTest: () => true, attach: () => ({}) };`,
  );
  return path;
}

describe('addons that the machine fails', () => {
  it('a trial that another process kills is not final', async () => {
    const path = writeScript('killed.cjs', `process.kill(process.pid, 'SIGKILL');`);
    const before = verdicts().length;
    const { refusal } = await openNative('auto', { path, cacheFolder });
    expect(refusal).toContain('its trial ended with SIGKILL');
    expect(verdicts()).toHaveLength(before);
  });

  it('a level that only the machine of the trial had', async () => {
    const path = writeScript('moved.cjs', `return isTrial ? ['avx2'] : [];`);
    for (const choice of ['auto', true, 'avx2'] as const) {
      const { kernels, refusal } = await openNative(choice, { path, cacheFolder });
      expect([kernels, refusal]).toEqual([undefined, expect.stringContaining('which this one lacks')]);
    }
  });

  it('an addon of another program', async () => {
    const path = join(folder, 'other.cjs');
    writeFileSync(path, 'module.exports = { hello: 1 };');
    const { refusal } = await openNative('auto', { path, cacheFolder });
    expect(refusal).toMatch(/its trial ended with code 1: TypeError: /);
  });
});

describe.skipIf(findAddon() === undefined || process.platform !== 'linux')(
  'copies of the addon that are damaged',
  () => {
    const refusalOf = async (name: string, change: (content: Buffer) => Buffer): Promise<string | undefined> => {
      const path = join(folder, name);
      writeFileSync(path, change(readFileSync(findAddon() as string)));
      return (await openNative('auto', { path, cacheFolder })).refusal;
    };

    it('cut in half', async () => {
      expect(await refusalOf('half.node', (content) => content.subarray(0, content.length / 2))).toContain(
        'its trial ended',
      );
    });

    it('for another processor', async () => {
      const riscv = 243;
      const changed = (content: Buffer): Buffer => (content.writeUInt16LE(riscv, 18), content);
      expect(await refusalOf('riscv.node', changed)).toMatch(/its trial ended with code 1: Error: /);
    });

    it('with code of zeros', async () => {
      const changed = (content: Buffer): Buffer => content.fill(0, 4096);
      expect(await refusalOf('zeros.node', changed)).toContain('its trial ended');
    });
  },
);

describe.skipIf(findAddon() === undefined)('an addon that ends its process', () => {
  const path = join(folder, 'crashing.node');
  const loads = join(folder, 'loads');
  const numLoads = (): number => (existsSync(loads) ? readFileSync(loads, 'utf8').length : 0);
  beforeAll(() => {
    const source = join(dirname(fileURLToPath(import.meta.url)), 'crashing-addon.c');
    const compiler = process.env['CXX'] ?? 'c++';
    const { status, stderr } = spawnSync(compiler, ['-shared', '-fPIC', '-x', 'c', source, '-o', path], {
      encoding: 'utf8',
    });
    expect([status, stderr]).toEqual([0, '']);
  });

  it('is tried once, and again only when it has changed', async () => {
    vi.stubEnv('WINNOW_TEST_LOADS', loads);
    for (let round = 0; round < 3; round++) {
      const { kernels, refusal } = await openNative('auto', { path, cacheFolder });
      expect([kernels, refusal]).toEqual([undefined, expect.stringContaining('its trial ended with SIGABRT')]);
    }
    expect(numLoads()).toBe(1);
    appendFileSync(path, 'changed');
    await openNative(true, { path, cacheFolder });
    expect(numLoads()).toBe(2);
  });

  it('is refused also when it ends without an error', async () => {
    vi.stubEnv('WINNOW_TEST_EXIT', '1');
    const { refusal } = await openNative('auto', { path, cacheFolder: join(folder, 'exit') });
    expect(refusal).toContain('its trial ended early');
  });

  it('is tried every time where no verdict can be kept', async () => {
    vi.stubEnv('WINNOW_TEST_LOADS', loads);
    const before = numLoads();
    const blocked = join(folder, 'blocked');
    writeFileSync(blocked, '');
    for (let round = 0; round < 2; round++) {
      expect((await openNative('auto', { path, cacheFolder: blocked })).refusal).toContain('SIGABRT');
    }
    expect(numLoads()).toBe(before + 2);
  });
});

describe.skipIf(findAddon() === undefined)('the addon of this machine', () => {
  it('has a verdict, and is loaded from it', async () => {
    const path = join(folder, 'winnow.node');
    const kept = join(folder, 'kept');
    copyFileSync(findAddon() as string, path);
    const { kernels, refusal } = await openNative(true, { path, cacheFolder: kept });
    expect([kernels?.path, refusal]).toEqual([path, undefined]);
    const [name = ''] = readdirSync(kept);
    expect(JSON.parse(readFileSync(join(kept, name), 'utf8'))).toEqual({
      levels: expect.arrayContaining([kernels?.level]),
    });
    writeFileSync(join(kept, name), JSON.stringify({ levels: [], refusal: 'kept' }));
    expect((await openNative(true, { path, cacheFolder: kept })).refusal).toContain('kept');
  });

  it('a verdict that is damaged counts as none', async () => {
    const damaged = join(folder, 'damaged');
    mkdirSync(damaged);
    await openNative(true, { cacheFolder: damaged });
    const [name = ''] = readdirSync(damaged);
    writeFileSync(join(damaged, name), '{');
    expect(nativeLevels).toContain((await openNative(true, { cacheFolder: damaged })).kernels?.level);
    expect(JSON.parse(readFileSync(join(damaged, name), 'utf8'))).toHaveProperty('levels');
  });

  it('none without the choice', async () => {
    expect(await openNative(false)).toEqual({});
  });
});
