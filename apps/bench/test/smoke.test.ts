import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sourceArguments, testCoverage } from '@winnow/test-utils';
import { openNative } from '@winnow/native/node';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { runBench, suites } from '../src/run-bench.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-bench-test-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const hasNative = (await openNative(true)).kernels !== undefined;

interface Run {
  readonly code: number;
  readonly out: string;
  readonly progress: string;
}

async function bench(...programArguments: string[]): Promise<Run> {
  const out: string[] = [];
  const progress: string[] = [];
  const code = await runBench([...programArguments, '--models-dir', folder, '--peer-dir', folder], {
    out: (text) => out.push(text),
    progress: (text) => progress.push(text),
    busyCores: () => Promise.resolve(0.5),
  });
  return { code, out: out.join(''), progress: progress.join('') };
}

/** Runs of a contender after its first one are in the full run. */
const quick = ['--quick', '--force', '--rounds', testCoverage === 'full' ? '2' : '1'];

const plotted = (): string => join(folder, 'plots');
let plotRun: Promise<Run> | undefined;
/** Dense and sparse attention with plots: in `npm test` also what the figures of sparse attention are read from. */
function runPlots(): Promise<Run> {
  const asked = ['--contexts', '64,96', '--threads', '1', '--json', '--plots', plotted(), '--report', plotted()];
  return (plotRun ??= bench('attention', 'sparse-attention', ...quick, ...asked));
}
/** It has more policies than all other suites have cases, and its figures are of one thread. */
const [shortPrompt, longPrompt] = testCoverage === 'full' ? [128, 192] : [64, 96];

/** Cases that each suite must have, by prefix of their names, with their baselines. */
const expected: Readonly<Record<string, readonly (readonly [string, string])[]>> = {
  roofline: [
    ['memory read, 1 thread', 'cache read, 1 thread'],
    ['f32 tile 4x8, 1 thread', 'f32 relaxed madd, 1 thread'],
    ['f32 tile 4x8, 2 threads', 'f32 tile 4x8, 1 thread'],
  ],
  overhead: [
    ['op without elements, 2 threads', 'op without elements, 1 thread'],
    ['op of 1024 rows, 2 threads: excess over its share', 'the total'],
  ],
  gemm: [
    ['f32 64x256 T=16, 1 thread', 'f32 relaxed madd, 1 thread'],
    ['q8_0 64x256 T=16, 2 threads: scaling', 'the same, 1 thread'],
  ],
  gemv: [['q4_K 64x256, 1 thread', 'memory read, 1 thread']],
  experts: [
    ['q8_0 2 of 8 of 64x256 T=1, 1 thread', 'memory read, 1 thread'],
    ['q8_0 2 of 8 of 64x256 T=16, 1 thread', 'i8 relaxed dot, 1 thread'],
  ],
  attention: [
    ['f32 T=1 256 keys 2 layers, 1 thread', 'memory read, 1 thread'],
    ['f32 T=16 64 keys 1 layer, 1 thread', 'f32 relaxed madd, 1 thread'],
  ],
  'sparse-attention': [
    [`prompt of ${longPrompt}, 1 thread`, 'dense'],
    [`prompt of ${longPrompt}, 1 thread: pair`, `the same for ${shortPrompt}`],
    [`prompt of ${longPrompt}, h2o:chunk=1024,local=256,heavy=256, 1 thread`, 'dense'],
    [`token after ${longPrompt}, page-topk:budget=16, 1 thread`, 'dense'],
    [
      `token after ${longPrompt}, sparq:rank=16,topk=128,layout=both, 1 thread: moved per KV head`,
      `dense, ${longPrompt * 128}`,
    ],
  ],
  ffn: [
    ['q8_0 64x256, 1 thread: dense', 'memory read, 1 thread'],
    ['q4_0 64x256, 1 thread: 25 % active', 'dense'],
    ['q4_0 64x256, 1 thread: 25 % active: speed-up', 'ideal, 4.00 x'],
    ['q8_0 64x256, 1 thread: break-even', 'all neurons'],
    ['q8_0 64x256, 1 thread: predictor of rank 32', 'dense'],
    ['cold bundles 512 x 1024 q8_0, 5 % active, neurons', 'the disk, read sequentially'],
  ],
  'ffn-product': [
    ['q8_0 256x512, 1 thread: dense block', 'itself'],
    ['q8_0 256x512, 2 threads: 50 % active, predictors of rank 32', 'dense'],
  ],
  'ffn-tokens': [['relu 192x576, 2 layers, q8_0, 2 threads: dense', 'itself']],
  fusions: [
    ['winnow-tiny q8_0 T=1, 2 threads: query, key and value together', 'as written'],
    ['winnow-tiny q8_0 T=4, 2 threads: without norms', 'as written'],
  ],
  kv: [
    ['f32 per token', 'layers x (keys + values) + position'],
    ['q4_0 append of 64 tokens, 2 threads', 'f32'],
    ['f32 cold @1024, 2 threads', 'hot'],
    ['cold pages of 64 KiB', 'the disk, read sequentially'],
  ],
  grammar: [
    ['2048 tokens: one mask inside a string, new', 'a token of a text, new grammar'],
    ['2048 tokens: a token of a text, known grammar', 'a token of a text, new grammar'],
  ],
  'event-loop': [
    ['a timer of 100 ms', '50 ms'],
    ['a prompt of 4 MB of lines', '50 ms'],
    ['a large schema', '50 ms'],
    ['a template of nested loops', '50 ms'],
  ],
  prefill: [['winnow-tiny f16, 2 threads @32', 'f32 relaxed madd, 2 threads']],
  profile: [
    ['winnow-tiny f16, 2 threads @16', 'all ops'],
    ['winnow-tiny f16, 2 threads @64: dense attention', 'f32 relaxed madd, 2 threads'],
    ['winnow-tiny f16, 2 threads @64: floor', 'the whole prompt'],
  ],
  memories: [
    ['winnow-tiny f16, 2 threads, 1 memory', 'memory read, 2 threads'],
    ['winnow-tiny f16, 2 threads, 6 memories: time per token', '1 of them'],
  ],
  decode: [
    ['winnow-tiny f16, 2 threads @16', 'memory read, 2 threads'],
    ['winnow-tiny f16, 2 threads @16', 'visited keys counted'],
    ['winnow-tiny f16, 2 threads @64: beyond @16', 'the total time per token @64'],
  ],
  load: [
    ['winnow-tiny f16, 2 threads', 'reading the file into new memory'],
    ['winnow-tiny f16, 2 threads: reading', 'the whole time'],
  ],
  speculation: [
    ['lookup, copying, demo model f16, 2 threads', 'plain decoding'],
    ['self, new text, demo model f16, 2 threads: slowest 64 tokens', 'plain decoding'],
    ['self=streaming:window=256,sinks=4, demo model f16, tokens 738 to 768, temperature 0: accepted', '4 drafts'],
  ],
};

/** Suites whose cases `npm test` runs for one number of threads: `gemm`, `kv` and `overhead` compare one with two. */
const threadsOf: Readonly<Record<string, readonly number[]>> =
  testCoverage === 'full'
    ? {}
    : {
        ...{ gemv: [1], experts: [1], attention: [1], 'sparse-attention': [1], ffn: [1] },
        ...{
          'ffn-tokens': [2],
          fusions: [2],
          prefill: [2],
          profile: [2],
          memories: [2],
          decode: [2],
          speculation: [2],
        },
      };

const measured = suites.filter(({ name }) => name !== 'agreement');

test('quick runs: every suite is covered here', () => {
  expect(measured.map(({ name }) => name).sort()).toEqual(Object.keys(expected).sort());
});

test.each(measured.map(({ name }) => name))('quick runs: %s: JSON lines with finite, named ratios', async (name) => {
  const suiteName = name === 'attention' ? 'dense-attention' : name;
  const isShared = name === 'sparse-attention' && testCoverage !== 'full';
  const threads = threadsOf[name] ?? [1, 2];
  vi.stubEnv('NODE_OPTIONS', sourceArguments.join(' ')); // for suites that start processes
  onTestFinished(() => void vi.unstubAllEnvs());
  const asked = ['--json', '--threads', threads.join(), ...(name === 'decode' ? ['--visited-keys'] : [])];
  const running = isShared ? runPlots() : bench(suiteName, ...quick, ...asked);
  const { code, out, progress } = await running;
  expect(code, progress).toBe(0);
  const [environment, ...figures] = out
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .filter(({ suite }) => !isShared || suite !== 'attention');
  expect(environment).toMatchObject({
    kind: 'env',
    backend: 'wasm',
    node: process.version,
    threads,
    cpuFlags: expect.any(Array),
    commit: expect.any(String),
    loadAverage: expect.any(Number),
  });
  const others = figures.pop();
  expect(others).toMatchObject({ suite: 'environment', case: 'other programs', unit: 'cores' });
  expect(figures.length).toBeGreaterThan(0);
  for (const figure of figures) {
    expect(Object.keys(figure).sort()).toEqual(['best', 'case', 'ratio', 'ratioOf', 'suite', 'unit', 'value']);
    expect(figure['suite']).toBe(name);
    for (const text of ['case', 'unit', 'ratioOf']) expect(figure[text]).toMatch(/\S/);
    for (const number of ['value', 'best', 'ratio']) expect(Number.isFinite(figure[number])).toBe(true);
  }
  const found = figures.map((figure) => `${String(figure['case'])} | ${String(figure['ratioOf'])}`);
  for (const [caseName, ratioOf] of expected[name]!) expect(found).toContain(`${caseName} | ${ratioOf}`);
});

test('quick runs: on the reference backend; the table has one line per figure', async () => {
  const asked = ['--backend', 'reference', '--dtypes', 'q8_0', '--threads', '1'];
  const { code, out } = await bench('gemm', ...quick, ...asked);
  expect(code).toBe(0);
  expect(out).toMatch(/^gemm +median +best +unit +ratio +of\nq8_0 64x256 T=16, 1 thread .*i8 relaxed dot, 1 thread$/m);
});

test('quick runs: attention: dense and sparse, with plots', async () => {
  const { code, out, progress } = await runPlots();
  const plots = plotted();
  expect(code, progress).toBe(0);
  const lines = out.trimEnd().split('\n');
  const found = lines.map((line) => (JSON.parse(line) as { suite?: string }).suite);
  expect([...new Set(found)]).toEqual([undefined, 'attention', 'sparse-attention', 'environment']);
  // every token before is in the window, and one block of 64 has a landmark from its last token on
  const pairs = lines.filter((line) => line.includes('pairs of a head'));
  expect(pairs.map((line) => (JSON.parse(line) as { value: number }).value)).toEqual([
    (64 * 65) / 2 + 1,
    (96 * 97) / 2 + 33,
  ]);
  const names = ['chunked-prefill', 'crossover', 'sparq-speed-up', 'subquadratic-prompt'];
  const files = ['report.html', 'report.json', ...names.map((name) => `${name}.svg`)];
  expect(readdirSync(plots).toSorted()).toEqual(files.toSorted());
  const html = readFileSync(join(plots, 'report.html'), 'utf8');
  expect(html.match(/<svg /g)!.length).toBeGreaterThan(names.length);
  for (const name of names) {
    const svg = readFileSync(join(plots, `${name}.svg`), 'utf8');
    expect(svg).toMatch(/^<svg .*<\/svg>$/s);
    expect(svg).not.toContain('NaN');
    expect(progress).toContain(`${name}.svg`);
  }
  expect(readFileSync(join(plots, 'sparq-speed-up.svg'), 'utf8')).toContain('possible');
});

test('quick runs: a suite of schemas gives shares, and times of masks', async () => {
  const folder = join(import.meta.dirname, '../../../packages/grammar/test/suite');
  const { code, out } = await bench('grammar', ...quick, '--json', '--suite', folder);
  expect(code).toBe(0);
  expect(out).toContain('"case":"' + folder + ': invalid and accepted","value":0,');
  expect(out).toMatch(/: \d{3,} cold masks, 4096 tokens, p99"/);
  expect(out).toMatch(/: \d{3,} warm masks, 4096 tokens, maximum"/);
});

test('quick runs: a synthetic model is written once and measured', async () => {
  const model = ['--models', 'winnow-tiny', '--dtypes', 'q4_K', '--tokens', '8'];
  const first = await bench('prefill', ...quick, ...model);
  expect(first.code).toBe(0);
  expect(first.progress).toContain('writing');
  const second = await bench(
    'prefill',
    ...quick,
    ...model,
    '--json',
    '--attention',
    'streaming:window=4,delta=4|dense',
  );
  expect(second.code, second.progress).toBe(0);
  expect(second.progress).not.toContain('writing');
  const figures = second.out.split('\n').filter((line) => line.includes('"suite":"prefill"'));
  const inTurns = /streaming:window=4,delta=4, \d threads? @8(: dense)?","value".*"ratioOf":"(dense|winnow)"/;
  expect(figures.flatMap((line) => inTurns.exec(line)?.slice(1) ?? [])).toEqual([
    undefined,
    'dense',
    ': dense',
    'winnow',
  ]);
});

test('command line: help names every suite', async () => {
  const { code, out } = await bench('--help');
  expect(code).toBe(0);
  for (const { name } of suites) expect(out).toContain(`  ${name} `);
});

test('command line: paths', async () => {
  expect(await bench('paths')).toMatchObject({ code: 0, out: `models ${folder}\npeers  ${folder}\n` });
});

test.each([
  [['gemmm'], 'expected suites of roofline'],
  [['gemm', '--threads', '0'], '--threads: expected a positive integer, got 0'],
  [['gemm', '--dtypes', 'q9'], '--dtypes: expected names'],
  [['gemm', '--shapes', '64'], '--shapes: expected outputs x inputs'],
  [['gemm', '--backend', 'gpu'], '--backend: expected wasm | reference, got gpu'],
  [['decode', '--peer', 'other'], '--peer: expected node-llama-cpp | wllama, got other'],
  [['gemm', '--load-limit', 'x'], '--load-limit: expected a positive number'],
  [['decode', '--attention', 'dense|dense'], '--attention: expected policies'],
  [['gemm', '--unknown'], 'unknown'],
])('command line: %j is rejected', async (programArguments, message) => {
  const { code, out, progress } = await bench(...programArguments);
  expect(code).toBe(2);
  expect(out).toBe('');
  expect(progress).toContain(message);
});

test('command line: a busy machine is rejected without --force, and marked with it', async () => {
  const asked = ['roofline', '--quick', '--backend', 'reference', '--threads', '1'];
  const refused = await bench(...asked);
  expect(refused).toMatchObject({ code: 3, out: '' });
  expect(refused.progress).toContain('other programs keep 0.50 cores busy, the limit is 0.3');
  expect((await bench(...asked, '--load-limit', '0.6')).out).not.toContain('NOISY');
  expect((await bench(...asked, '--force')).out).toContain('0.5 cores busy: NOISY');
});

test('command line: wllama without Chromium: the message says what to do', async () => {
  const path = process.env['WINNOW_CHROMIUM'];
  process.env['WINNOW_CHROMIUM'] = join(folder, 'no-browser');
  try {
    const { code, progress } = await bench('decode', ...quick, '--peer', 'wllama');
    expect(code).toBe(1);
    expect(progress).toMatch(/Chromium is missing: no file .*no-browser; apt-get install chromium/);
  } finally {
    if (path === undefined) delete process.env['WINNOW_CHROMIUM'];
    else process.env['WINNOW_CHROMIUM'] = path;
  }
});

test('command line: an unknown model and a comparison without a peer fail with a message', async () => {
  const unknown = await bench('prefill', ...quick, '--models', 'gpt-9');
  expect(unknown.code).toBe(1);
  expect(unknown.progress).toContain('expected a model of tinyllama-1.1b');
  const alone = await bench('agreement', ...quick);
  expect(alone.code).toBe(1);
  expect(alone.progress).toContain('--peer node-llama-cpp');
  const other = await bench('agreement', ...quick, '--peer', 'wllama');
  expect(other.code).toBe(1);
  expect(other.progress).toContain('wllama is measured by prefill and decode only');
});

test.skipIf(!hasNative)('native kernels are measured next to the WebAssembly ones', async () => {
  const asked = ['--native', '--threads', '1', '--dtypes', 'q8_0', '--contexts', '64', '--json'];
  const { code, out, progress } = await bench('gemm', 'gemv', 'experts', 'attention', ...quick, ...asked);
  expect(progress.split('\n').filter((line) => line.startsWith('bench: ') && !line.includes('busy'))).toEqual([]);
  expect(code).toBe(0);
  const gains = out.split('\n').filter((line) => /: gain/.test(line));
  for (const line of gains) expect(line).toContain('"ratioOf":"WebAssembly, 1 thread"');
  const suitesOf = gains.map((line) => /"suite":"([^"]+)"/.exec(line)?.[1]);
  const counts = ['gemm', 'gemv', 'experts', 'attention', 'sparse-attention'].map(
    (name) => suitesOf.filter((each) => each === name).length,
  );
  // two layers and a tile of prefill; the table, two prompts, four corrections and five policies of decode
  expect(counts).toEqual([1, 1, 2, 3, 12]);
});
