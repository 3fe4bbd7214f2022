/** The addon of this machine, compiled from source; its tests are skipped where there is no C++ compiler. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { findAddon, platformName } from '../src/index.node.js';
import { nativeLevels, type NativeAddon } from '../src/index.js';

const folder = dirname(dirname(fileURLToPath(import.meta.url)));
const path = findAddon();
const lockModule = (await import(join(folder, 'scripts', 'lock.mjs'))) as {
  lock(path: string, wait?: () => Promise<void>): Promise<() => void>;
};

describe.skipIf(path === undefined)('the addon of this machine', () => {
  const load = (): NativeAddon => createRequire(import.meta.url)(path as string) as NativeAddon;

  it('has levels whose instructions work', () => {
    const addon = load();
    const levels = addon.levels();
    expect(levels.every((level) => (nativeLevels as readonly string[]).includes(level))).toBe(true);
    expect(levels.map((level) => addon.selfTest(level))).toEqual(levels.map(() => true));
  });

  it('refuses levels that it does not have', () => {
    expect(() => load().attach(new Uint8Array(64), 'sse9')).toThrow('this machine does not have the level');
    expect(() => load().selfTest('sse9')).toThrow('this machine does not have the level');
  });

  it('measures peaks', () => {
    const addon = load();
    for (const level of addon.levels()) {
      expect(addon.measurePeak(level, 'f32', new Uint8Array(1), 1000)).toBeGreaterThan(1e5);
      expect(addon.measurePeak(level, 'int8', new Uint8Array(1), 1000)).toBeGreaterThan(4e5);
      expect(addon.measurePeak(level, 'read', new Uint8Array(1024), 0)).toBe(1024);
    }
    expect(() => addon.measurePeak('sse9', 'f32', new Uint8Array(1), 1)).toThrow('does not have the level');
    expect(() => addon.measurePeak(addon.levels()[0] as string, 'f32', new Uint8Array(1), -1)).toThrow(
      'measurePeak: expected',
    );
  });

  it('is built once: a second build compiles nothing', () => {
    const before = statSync(path as string).mtimeMs;
    const { status, stderr } = spawnSync(process.execPath, [join(folder, 'scripts', 'build.mjs')], {
      encoding: 'utf8',
    });
    expect([status, stderr]).toEqual([0, '']);
    expect(statSync(path as string).mtimeMs).toBe(before);
  });
});

describe('the lock of a build', () => {
  const file = join(mkdtempSync(join(tmpdir(), 'winnow-lock-')), 'lock');
  afterAll(() => rmSync(dirname(file), { recursive: true }));

  it('is held by one build at a time', async () => {
    const order: string[] = [];
    const unlock = await lockModule.lock(file);
    const wait = async (): Promise<void> => {
      if (order.push('waits') === 2) unlock();
    };
    (await lockModule.lock(file, wait))();
    expect(order).toEqual(['waits', 'waits']);
    expect(existsSync(file)).toBe(false);
  });

  it('is taken from a process that has ended', async () => {
    const { pid } = spawnSync(process.execPath, ['-e', '']);
    writeFileSync(file, String(pid));
    (await lockModule.lock(file))();
    expect(existsSync(file)).toBe(false);
  });
});

/** Programs of source/tests, compiled for each level. */
const programs = (): string[] => {
  try {
    const names = readdirSync(join(folder, 'build', platformName(), 'tests'));
    return names.filter((name) => !/-[0-9a-f]{16}$/.test(name));
  } catch {
    return [];
  }
};

/** The status of a program whose instructions the machine lacks. */
const unavailable = 77;

describe.skipIf(path === undefined)('microkernels', () => {
  // avxvnni in the encoding of AVX-512, which more machines have
  it.for(programs())('%s', (name, { skip }) => {
    const { status, stdout, stderr } = spawnSync(join(folder, 'build', platformName(), 'tests', name), {
      encoding: 'utf8',
    });
    skip(status === unavailable, 'this machine lacks the instructions');
    expect(`${status}${status === 0 ? '' : `\n${stdout}${stderr}`}`).toBe('0');
  });
});
