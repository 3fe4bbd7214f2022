import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openPeerBinary } from './binary.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-bench-binary-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A program that prints what `body` returns for its arguments. */
function program(name: string, body: string): string {
  const path = join(folder, name);
  const script = `const args = process.argv.slice(2);\nconst after = (flag) => args[args.indexOf(flag) + 1];\n${body}`;
  writeFileSync(path, `#!${process.execPath}\n${script}\n`, { mode: 0o755 });
  return path;
}

const settings = { modelPath: 'model.gguf', threads: 2, flashAttention: true };
const tokens = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

/** The time is the number of milliseconds that `milliseconds` says. */
const bench = (help: string, milliseconds: string): string => `
if (args.includes('--help')) console.log('${help}');
else if (after('-m') !== 'model.gguf' || after('-t') !== '2' || after('-fa') !== '1') process.exit(1);
else console.log(JSON.stringify([{ avg_ns: 1e6 * (${milliseconds}) }]));`;

describe.skipIf(process.platform === 'win32')('programs of llama.cpp and its forks', () => {
  test('llama-bench: prompts, and tokens after a context, by depth', async () => {
    const milliseconds = "100 * after('-p') + 10 * after('-n') + (args.includes('-d') ? Number(after('-d')) : 0)";
    const peer = await openPeerBinary(program('llama-bench', bench('-d, --n-depth <n>', milliseconds)), settings);
    expect(peer.name).toBe('llama-bench');
    expect(await peer.prefill(tokens(7))).toEqual({ timeMs: 700 });
    await peer.setContext(0, tokens(63));
    await peer.setContext(1, tokens(127));
    expect(await peer.decode(1, 0, 4)).toEqual({ timeMs: 168 });
    expect(await peer.decode(0, 0, 4)).toEqual({ timeMs: 104 });
    if (process.platform === 'linux') expect(peer.cpuMs).toBeGreaterThan(0);
  });

  test('llama-bench of a fork without depths: a prompt before the tokens', async () => {
    const milliseconds = "after('-gp') === '64,4' && after('-p') === '0' && after('-n') === '0' ? 5 : 0";
    const peer = await openPeerBinary(program('ik-llama-bench', bench('-gp <pp,tg>', milliseconds)), settings);
    await peer.setContext(0, tokens(63));
    expect(await peer.decode(0, 0, 4)).toEqual({ timeMs: 5 });
  });

  test('llama-sweep-bench: the sum of its batches, and the row of a context', async () => {
    const rows = `
const row = (...cells) => console.error('| ' + cells.join(' | ') + ' |');
row('PP', 'TG', 'N_KV', 'T_PP s', 'S_PP t/s', 'T_TG s', 'S_TG t/s');
const batch = Number(after('-ub'));
const size = Math.ceil(Number(after('-c')) / 256) * 256;
for (let at = 0; at < size; at += batch) row(batch, batch / 4, at, 0.5, 1, (batch / 4) * 0.002 * (at + 1), 1);`;
    const peer = await openPeerBinary(program('llama-sweep-bench', rows), settings);
    expect(await peer.prefill(tokens(1024))).toEqual({ timeMs: 1000 });
    expect(await peer.prefill(tokens(96))).toEqual({ timeMs: 500 });
    await peer.setContext(0, tokens(1023));
    expect((await peer.decode(0, 0, 16)).timeMs).toBeCloseTo(16 * 2 * 1025, 6);
  });

  test('errors name the program and what it said', async () => {
    await expect(openPeerBinary('/bin/true', settings)).rejects.toThrow(
      /named llama-bench or llama-sweep-bench, got \/bin\/true/,
    );
    const missing = join(folder, 'none', 'llama-bench');
    await expect(openPeerBinary(missing, settings)).rejects.toThrow(/--peer-binary: .*ENOENT/);
    const broken = program(
      'llama-bench-2',
      "if (!args.includes('--help')) { console.error('no such model'); process.exit(1); }",
    );
    await expect((await openPeerBinary(broken, settings)).prefill([1])).rejects.toThrow(
      /llama-bench-2 failed: no such model/,
    );
    const silent = await openPeerBinary(program('llama-bench-3', ''), settings);
    await expect(silent.prefill([1])).rejects.toThrow(/expected JSON, got/);
    const table = await openPeerBinary(program('llama-sweep-bench-2', "console.error('no rows')"), settings);
    await expect(table.prefill([1])).rejects.toThrow(/expected the time of the measurement in the output, got no rows/);
  });
});
