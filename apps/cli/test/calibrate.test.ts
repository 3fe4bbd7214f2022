/** `winnow calibrate`, its sidecar, and the commands that read it: `inspect` and `eval --sparsity`. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { runCli, TestHost } from './run-cli.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-calibrate-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const small = [
  '--samples',
  '8',
  '--sample-tokens',
  '32',
  '--eval-tokens',
  '16',
  '--epochs',
  '1',
  '--rank',
  '32',
  '-t',
  '1',
];

/** A copy of the calibration of the demo model, made once for all tests. */
async function calibrated(name: string): Promise<string> {
  calibration ??= calibrate('whole').then((path) => readFileSync(path));
  const path = join(folder, `${name}.sparse.safetensors`);
  writeFileSync(path, await calibration);
  return path;
}
let calibration: Promise<Buffer> | undefined;

async function calibrate(name: string, ...argv: readonly string[]): Promise<string> {
  const path = join(folder, `${name}.sparse.safetensors`);
  const run = await runCli(engine, ['calibrate', ...small, ...argv, '-o', path, '-q']);
  expect(run).toMatchObject({ code: 0, stderr: '' });
  return path;
}

test('--imatrix: collects an importance matrix, by which convert quantizes', { timeout: 60_000 }, async () => {
  const demo = dirname(fileURLToPath(demoModelUrl));
  const own = mkdtempSync(join(tmpdir(), 'winnow-imatrix-'));
  onTestFinished(() => rmSync(own, { recursive: true }));
  const [imatrix, target] = [join(own, 'imatrix.gguf'), join(own, 'demo.gguf')];
  const samples = ['--samples', '3', '--sample-tokens', '16'];
  const { code, stdout, stderr } = await runCli(engine, [
    'calibrate',
    demo,
    ...samples,
    '-t',
    '1',
    '--imatrix',
    imatrix,
  ]);
  expect({ code, stdout, stderr }).toEqual({
    code: 0,
    stderr: expect.stringMatching(/collecting on a built-in text/),
    stdout: expect.stringMatching(/^written: .*imatrix\.gguf, \d+ matrices\n$/),
  });
  const converted = await runCli(engine, ['convert', demo, target, '--type', 'mxfp4', '--imatrix', imatrix]);
  expect(converted).toMatchObject({ code: 0, stderr: expect.not.stringMatching(/not of this model/) });
  const wrong = await runCli(engine, ['calibrate', demo, '--rank', '32', '--imatrix', imatrix]);
  expect(wrong).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/--rank: expected no flag of neuron predictors/),
  });
});

describe('winnow calibrate', { timeout: 120_000 }, () => {
  test('prints a line and a bar per layer, the means and whether the target is met, and writes the file', async () => {
    const path = join(folder, 'demo.sparse.safetensors');
    const { code, stdout, stderr } = await runCli(engine, ['calibrate', ...small, '-o', path]);
    expect(code).toBe(0);
    expect(stderr).toMatch(/calibrating on a built-in text/);
    expect(stdout).toMatch(
      /^layer +predictor +needed +active +recall +precision +cosine +bytes +runs +active neurons\n/,
    );
    for (let layer = 0; layer < 6; layer++) {
      expect(stdout).toMatch(new RegExp(`^${layer} +low-rank 32 +[\\d.]+% .*[█▏▎▍▌▋▊▉·]{24}$`, 'm'));
    }
    expect(stdout).toMatch(/neurons skipped +\d\d\.\d%/);
    expect(stdout).toMatch(/perplexity ratio +\d\.\d{4} \(mean KLD \d\.\d{4}, decoding \d+ tokens\)/);
    expect(stdout).toMatch(/target recall 95\.0%: (met|missed) with \d\d\.\d%, worst layer \d\d\.\d%/);
    expect(stdout).toMatch(/written: .*demo\.sparse\.safetensors, \d+ kB\n$/);
    expect(readdirSync(folder)).toEqual(['demo.sparse.safetensors']);
    calibration = Promise.resolve(readFileSync(path));
  });

  test('as JSON', async () => {
    const path = join(folder, 'json.sparse.safetensors');
    const flags = ['--samples', '16', '--predictor', 'gate-threshold', '--target-sparsity', '0.8'];
    const argv = ['calibrate', ...small, ...flags, '-o', path];
    const { stdout } = await runCli(engine, [...argv, '--json', '-q']);
    const result = JSON.parse(stdout) as { layers: { kind: string; activeRatio: number }[]; divergence: object };
    expect(result).toMatchObject({ path, config: { target: { sparsity: 0.8 }, numSamples: 16 } });
    expect(result.layers.map(({ kind }) => kind)).toEqual(Array<string>(6).fill('gate-threshold'));
    const mean = result.layers.reduce((sum, { activeRatio }) => sum + activeRatio, 0) / 6;
    expect(Math.abs(mean - 0.2)).toBeLessThan(0.08); // on 128 held-out tokens
    expect(result.divergence).toBeDefined();
  });

  test('resumes after Ctrl-C and writes the same file', async () => {
    const expected = readFileSync(await calibrated('expected'));
    const path = join(folder, 'stopped.sparse.safetensors');
    const argv = ['calibrate', ...small, '-o', path];
    const host = new TestHost(engine);
    const running = host.run(argv);
    while (!existsSync(`${path}.partial`)) await setTimeout(1);
    host.interrupt();
    const stopped = await running;
    expect(stopped.code).toBe(130);
    expect(stopped.stderr).toContain(`winnow: run the same command to resume from ${path}.partial\n`);
    expect(existsSync(path)).toBe(false);
    const resumed = await runCli(engine, argv);
    expect(resumed.code).toBe(0);
    expect(resumed.stderr).toContain(`winnow: ${path}.partial: resuming\n`);
    expect(readFileSync(path).equals(expected)).toBe(true);
    expect(existsSync(`${path}.partial`)).toBe(false);
  });
});

describe('winnow calibrate: other models', { timeout: 120_000 }, () => {
  test('SwiGLU: estimates of gate and up, and layers that run dense count as dense', async () => {
    const llama = fileURLToPath(
      new URL('../../../packages/engine/test/fixtures/arch/llama/model.gguf', import.meta.url),
    );
    const path = join(folder, 'swiglu.sparse.safetensors');
    const argv = ['calibrate', llama, ...small, '--samples', '16', '--target-sparsity', '0.3', '-o', path, '-q'];
    const dense = await runCli(engine, argv);
    expect(dense).toMatchObject({ code: 0, stderr: '' });
    expect(dense.stdout).toMatch(/^0 +low-rank-product 32 .* dense +█/m);
    expect(dense.stdout).toMatch(/layers run dense, with all neurons: more than \d\d\.\d% .*\(--sparsity-max-active\)/);
    expect(dense.stdout).toMatch(/neurons skipped +0\.0%; (29|3\d)\.\d% if no layer ran dense\nrecall +100\.0%/);
    expect(dense.stdout).toMatch(/FFN bytes per token +.*\(100\.0%\)/);
    expect(dense.stdout).toMatch(/target sparsity 30\.0%: missed with 0\.0%\n/);
    const sparse = await runCli(engine, [...argv, '--sparsity-max-active', '1', '--json']);
    const { summary, layers } = JSON.parse(sparse.stdout) as {
      readonly summary: Readonly<Record<string, number>>;
      readonly layers: readonly { readonly runsDense: boolean }[];
    };
    expect(summary['numDenseLayers']).toBe(0);
    expect(summary['skippedRatio']).toBe(summary['predictedSkippedRatio']);
    expect(layers.some(({ runsDense }) => runsDense)).toBe(false);
    // the sidecar of another model is rejected by every command
    for (const command of [
      ['run', '-p', 'x'],
      ['eval', '--tokens', '32'],
    ]) {
      const { code, stderr } = await runCli(engine, [...command, '--sparsity', path]);
      expect({ code, stderr }).toMatchObject({
        code: 3,
        stderr: expect.stringMatching(/calibrated for another model/),
      });
    }
  });

  test('an embedding model whose FFNs have two matrices', async () => {
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
});

describe('winnow calibrate: errors', { timeout: 120_000 }, () => {
  test.each<[string, readonly string[], RegExp]>([
    ['both targets', ['--target-recall', '0.9', '--target-sparsity', '0.5'], /--target-recall: expected one target/],
    ['a rank of 33', ['--rank', '33'], /--rank: expected a multiple of 32, got '33'/],
    ['a recall of 2', ['--target-recall', '2'], /--target-recall: expected a number above 0/],
    ['too little text', ['--text', 'SHORT'], /--text: expected enough for 3 samples of 128 tokens, got \d+ tokens/],
  ])('rejects %s', async (_name, argv, message) => {
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

  test.each([
    ['a folder', '.', 'is a folder, expected a file'],
    ['a file in a folder that is missing', 'missing/x', 'no such file or folder'],
  ])('rejects writing %s before it calibrates', async (_name, path, message) => {
    const output = join(folder, path);
    const { code, stderr } = await runCli(engine, ['calibrate', ...small, '-o', output, '-q']);
    expect(code).toBe(1);
    expect(stderr).toContain(message);
    expect(existsSync(`${output}.partial`)).toBe(false);
  });
});

describe('a finished calibration', { timeout: 120_000 }, () => {
  test('is printed by inspect', async () => {
    const path = await calibrated('inspected');
    const { code, stdout } = await runCli(engine, ['inspect', path]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^calibration\n {2}name .*\n {2}model .*\n {2}target +recall 95\.0%\n/);
    expect(stdout).toMatch(/\nlayers\n {2}layer +predictor/);
    expect(stdout).toMatch(/\n {2}layer +hot +warm +cold\n {2}0 +\d+ +\d+ +\d+ +█+▒+·+\n/);
  });

  test('is measured by eval --sparsity on another text', async () => {
    const path = await calibrated('evaluated');
    const argv = ['eval', '--sparsity', path, '--tokens', '96', '-t', '1'];
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

  test('is rejected if damaged', async () => {
    const path = await calibrated('damaged');
    const bytes = readFileSync(path);
    bytes[bytes.length - 7] = (bytes[bytes.length - 7] as number) ^ 4;
    writeFileSync(path, bytes);
    for (const argv of [
      ['inspect', path],
      ['eval', '--sparsity', path],
      ['run', '--sparsity', path, '-p', 'x'],
    ]) {
      const { code, stderr } = await runCli(engine, argv);
      expect({ code, stderr }).toMatchObject({ code: 3, stderr: expect.stringMatching(/checksum.*damaged/) });
    }
  });
});
