/** `winnow calibrate`, what it leaves, and what reads that: `inspect` and `eval --sparse`. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as engine from '@winnow/engine';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runCli, TestHost } from './run-cli.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-calibrate-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const small = ['--samples', '24', '--sample-tokens', '64', '--eval-tokens', '64', '--epochs', '2', '-t', '1'];

async function calibrate(name: string, ...argv: readonly string[]): Promise<string> {
  const path = join(folder, `${name}.sparse.safetensors`);
  const run = await runCli(engine, ['calibrate', ...small, ...argv, '-o', path, '-q']);
  expect(run).toMatchObject({ code: 0, stderr: '' });
  return path;
}

describe('winnow calibrate', { timeout: 120_000 }, () => {
  test('prints a line and a bar per layer, the means and whether the target was met, and writes the file', async () => {
    const path = join(folder, 'demo.sparse.safetensors');
    const { code, stdout, stderr } = await runCli(engine, ['calibrate', ...small, '-o', path]);
    expect(code).toBe(0);
    expect(stderr).toMatch(/calibrating on a built-in text/);
    expect(stdout).toMatch(/^layer +predictor +needed +active +recall +precision +cosine +bytes +runs +neurons chosen\n/);
    for (let layer = 0; layer < 6; layer++) {
      expect(stdout).toMatch(new RegExp(`^${layer} +low-rank 64 +[\\d.]+ % .*[█▏▎▍▌▋▊▉·]{24}$`, 'm'));
    }
    expect(stdout).toMatch(/neurons skipped +\d\d\.\d %/);
    expect(stdout).toMatch(/perplexity ratio +\d\.\d{4} \(mean KLD \d\.\d{4}, decoding \d+ tokens\)/);
    expect(stdout).toMatch(/target recall 95\.0 %: (met|missed) with \d\d\.\d %, worst layer \d\d\.\d %/);
    expect(stdout).toMatch(/written: .*demo\.sparse\.safetensors, \d+ kB\n$/);
    expect(readdirSync(folder)).toEqual(['demo.sparse.safetensors']);
  });

  test('as JSON', async () => {
    const path = join(folder, 'json.sparse.safetensors');
    const argv = ['calibrate', ...small, '--predictor', 'gate-threshold', '--target-sparsity', '0.8', '-o', path];
    const { stdout } = await runCli(engine, [...argv, '--json', '-q']);
    const result = JSON.parse(stdout) as { layers: { kind: string; activeRatio: number }[]; divergence: object };
    expect(result).toMatchObject({ path, config: { target: { sparsity: 0.8 }, numSamples: 24 } });
    expect(result.layers.map(({ kind }) => kind)).toEqual(Array<string>(6).fill('gate-threshold'));
    const mean = result.layers.reduce((sum, { activeRatio }) => sum + activeRatio, 0) / 6;
    expect(Math.abs(mean - 0.2)).toBeLessThan(0.08); // on 128 tokens that chose nothing
    expect(result.divergence).toBeDefined();
  });

  test('stopped by Ctrl-C it goes on from there, to the same file', async () => {
    const expected = readFileSync(await calibrate('whole'));
    const path = join(folder, 'stopped.sparse.safetensors');
    const argv = ['calibrate', ...small, '-o', path, '-q'];
    const host = new TestHost(engine);
    const stopped = host.run(argv);
    while (!existsSync(`${path}.partial`)) await setTimeout(1);
    host.interrupt();
    expect((await stopped).code).toBe(130);
    expect(existsSync(path)).toBe(false);
    expect(await runCli(engine, argv)).toMatchObject({ code: 0, stderr: '' });
    expect(readFileSync(path).equals(expected)).toBe(true);
    expect(existsSync(`${path}.partial`)).toBe(false);
  });

  test('a model that embeds, with blocks of two matrices', async () => {
    const bert = fileURLToPath(
      new URL('../../../packages/engine/test/fixtures/arch/bert-mean/model.gguf', import.meta.url),
    );
    const text = join(folder, 'texts.txt');
    writeFileSync(text, Array.from({ length: 24 }, (_, i) => `text ${i} of several words`).join('\n\n'));
    const path = await calibrate('bert', bert, '--text', text);
    const { stdout } = await runCli(engine, ['inspect', path, '--json']);
    const { layers } = JSON.parse(stdout) as { layers: { predictor: string; isGated: boolean }[] };
    expect(layers.length).toBeGreaterThan(0);
    for (const layer of layers) expect(layer).toMatchObject({ predictor: 'low-rank', isGated: false });
  });

  test.each<[string, readonly string[], RegExp]>([
    ['both targets', ['--target-recall', '0.9', '--target-sparsity', '0.5'], /--target-recall: expected one target/],
    ['a rank of 33', ['--rank', '33'], /--rank: expected a multiple of 32, got '33'/],
    ['a recall of 2', ['--target-recall', '2'], /--target-recall: expected a number above 0/],
    ['too little text', ['--text', 'SHORT'], /--text: expected enough for 3 samples of 128 tokens, got \d+ tokens/],
  ])('refuses %s', async (_name, argv, message) => {
    const short = join(folder, 'short.txt');
    writeFileSync(short, 'Only a few words.');
    const { code, stderr } = await runCli(engine, [
      'calibrate',
      ...argv.map((word) => (word === 'SHORT' ? short : word)),
    ]);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
    rmSync(short);
  });
});

describe('what a calibration leaves', { timeout: 120_000 }, () => {
  test('inspect prints it', async () => {
    const path = await calibrate('inspected');
    const { code, stdout } = await runCli(engine, ['inspect', path]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^calibration\n {2}name .*\n {2}model .*\n {2}target +recall 95\.0 %\n/);
    expect(stdout).toMatch(/\nlayers\n {2}layer +predictor/);
    expect(stdout).toMatch(/\n {2}layer +hot +warm +cold\n {2}0 +\d+ +\d+ +\d+ +█+▒+·+\n/);
  });

  test('eval --sparse measures it on another text', async () => {
    const path = await calibrate('evaluated');
    const argv = ['eval', '--sparse', path, '--tokens', '96', '-t', '1'];
    const { stdout } = await runCli(engine, [...argv, '--json', '-q']);
    const result = JSON.parse(stdout) as {
      readonly numTokens: number;
      readonly summary: { readonly recall: number };
      readonly logits: Record<'decode' | 'prefill', { readonly divergence: { readonly mean: number } }>;
    };
    expect(result.numTokens).toBe(96);
    expect(result.summary.recall).toBeGreaterThan(0.8);
    expect(result.logits.decode.divergence.mean).toBeGreaterThan(result.logits.prefill.divergence.mean);
    const text = await runCli(engine, argv);
    expect(text.stdout).toMatch(/neurons skipped[^]*\ntoken by token\ntokens +95\n[^]*mean KLD[^]*\nin batches/);
  });

  test('damaged ones are refused', async () => {
    const path = await calibrate('damaged');
    const bytes = readFileSync(path);
    bytes[bytes.length - 7] = (bytes[bytes.length - 7] as number) ^ 4;
    writeFileSync(path, bytes);
    for (const argv of [
      ['inspect', path],
      ['eval', '--sparse', path],
      ['run', '--sparse', path, '-p', 'x'],
    ]) {
      const { code, stderr } = await runCli(engine, argv);
      expect({ code, stderr }).toMatchObject({ code: 3, stderr: expect.stringMatching(/checksum.*damaged/) });
    }
  });
});
