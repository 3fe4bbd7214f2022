import { parsePolicy, sparqTransfers, type SparqPolicy } from '@winnow/sparse-attention';
import { milliseconds, perSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender, type Timing } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { loadPolicy, pairsOf, type PolicyCase } from './attention-programs.js';
import { crossoverPlot, promptRatePlot, promptTimePlot, sparqPlot } from './sparse-attention-plots.js';

const suite = 'sparse-attention';

/** The problem of the specification: window 128, blocks of 64. */
const table = { phase: 'prefill', numHeads: 8, numKvHeads: 8, headDim: 64, numLayers: 1 } as const;
const tablePolicy = 'subquadratic:window=128,block=64,globals=0,landmarks=compat';
/** Longest prompt measured with dense attention; beyond it, the time is extrapolated from the last queries. */
const longestDense = 8192;
const lastQueries = 1024;

/** Layers of a 1.1B Llama, enough of them that the overhead of a run is negligible. */
const decodeShape = { phase: 'decode', numHeads: 32, numKvHeads: 4, headDim: 64, numTokens: 1 } as const;
const decodeLayers = 4;
const sparq = 'sparq:rank=16,topk=128,layout=both';
const decodePolicies = [
  'subquadratic:window=256,landmarks=outside-window',
  'streaming:window=1024,sinks=4',
  'sparq:rank=16,topk=128',
  sparq,
  'page-topk:budget=16',
];

/** Prompts in one batch, grouped heads: tokens per second of attention alone. */
const promptShape = { phase: 'prefill', numHeads: 8, numKvHeads: 2, headDim: 64, numLayers: 1 } as const;
const promptPolicies = ['h2o:chunk=1024,local=256,heavy=256', 'streaming:window=1024,sinks=4'];

/** What every so many dense queries cost a sparse prompt. */
const correction = 'delta=64';
const correctedPolicies = ['subquadratic:window=128', 'streaming:window=128,sinks=4', ...promptPolicies];

/** Attention under policies: the table of the subquadratic specification, and decoding over long contexts. */
export const sparseAttention: Suite = {
  name: suite,
  summary: 'attention policies: pairs and time of prompts, time per token against context length, break-even',
  async *run(context) {
    const { quick, contexts, threads } = context.options;
    const [minThreads = 1] = threads;
    const prompts = contexts ?? (quick ? [128, 192] : [512, 1024, 2048, 4096, 8192, 16384, 32768]);
    yield* measureTable(context, prompts, minThreads);
    for (const policy of promptPolicies) yield* measurePrompts(context, policy, prompts, minThreads);
    for (const policy of correctedPolicies) yield* measureCorrection(context, policy, prompts, minThreads);
    const lengths = contexts ?? (quick ? [128, 192] : [512, 1024, 2048, 4096, 8192, 32768]);
    for (const policy of decodePolicies) yield* measureDecode(context, policy, lengths, minThreads);
  },
};

async function* measureTable(
  context: SuiteContext,
  lengths: readonly number[],
  threads: number,
): AsyncIterable<Figure> {
  const crossover = new Crossover(context, `prompts, ${tablePolicy}`);
  let first: number | undefined;
  for (const numKeys of lengths) {
    const work = { ...table, policy: tablePolicy, numKeys, numTokens: numKeys, kvDType: 'f32' } as const;
    const numQueries = numKeys <= longestDense ? numKeys : lastQueries;
    const dense = { ...work, policy: 'dense', numTokens: numQueries };
    const { timings, pairs } = await measureCases(context, { work, dense }, threads, numKeys > 2048 ? 3 : 7);
    const densePairs = pairsOfLast(numKeys, numKeys);
    const measured = timings['work']!;
    const denseMs = timings['dense']!.medianMs * (densePairs / pairsOfLast(numQueries, numKeys));
    const name = `prompt of ${numKeys}, ${threadsText(threads)}`;
    const ratio = measured.medianMs / denseMs;
    const ratioOf = numQueries === numKeys ? 'dense' : `dense, extrapolated from its last ${numQueries} queries`;
    yield { suite, case: name, ...milliseconds(measured), unit: 'ms', ratio, ratioOf };
    context.plot(promptTimePlot, 'subquadratic', numKeys, measured.medianMs);
    context.plot(promptTimePlot, 'dense', numKeys, denseMs);
    crossover.add(numKeys, ratio);
    const perHead = { case: `${name}: pairs of a head`, ratio: pairs / densePairs, ratioOf: 'dense' };
    yield { suite, ...perHead, value: pairs, best: pairs, unit: 'pairs' };
    const perPair = milliseconds(measured, (pairs * table.numHeads) / 1e6);
    first ??= perPair.value;
    const shortest = `the same for ${lengths[0]}`;
    yield { suite, case: `${name}: pair`, ...perPair, unit: 'ns', ratio: perPair.value / first, ratioOf: shortest };
  }
  yield* crossover.figures();
}

async function* measurePrompts(
  context: SuiteContext,
  policy: string,
  lengths: readonly number[],
  threads: number,
): AsyncIterable<Figure> {
  const crossover = new Crossover(context, `prompts, ${policy}`);
  for (const numKeys of lengths.filter((length) => length <= longestDense)) {
    const work = { ...promptShape, policy, numKeys, numTokens: numKeys, kvDType: context.options.kvDType };
    const cases = { work, dense: { ...work, policy: 'dense' } };
    const { timings } = await measureCases(context, cases, threads, numKeys > 2048 ? 3 : 7, false);
    const [sparse, dense] = [perSecond(numKeys, timings['work']!), perSecond(numKeys, timings['dense']!)];
    const name = `prompt of ${numKeys}, ${policy}, ${threadsText(threads)}`;
    yield { suite, case: name, ...sparse, unit: 'tokens/s', ratio: sparse.value / dense.value, ratioOf: 'dense' };
    context.plot(promptRatePlot, policy, numKeys, sparse.value);
    context.plot(promptRatePlot, `dense with ${policy.split(':', 1)[0]}`, numKeys, dense.value);
    crossover.add(numKeys, dense.value / sparse.value);
  }
  yield* crossover.figures();
}

async function* measureCorrection(
  context: SuiteContext,
  policy: string,
  lengths: readonly number[],
  threads: number,
): AsyncIterable<Figure> {
  for (const numKeys of lengths.filter((length) => length <= longestDense)) {
    const plain = { ...promptShape, policy, numKeys, numTokens: numKeys, kvDType: context.options.kvDType };
    const cases = { work: { ...plain, policy: `${policy},${correction}` }, plain };
    const { timings } = await measureCases(context, cases, threads, numKeys > 2048 ? 3 : 7, false);
    const [work, without] = [timings['work']!, timings['plain']!];
    const name = `prompt of ${numKeys}, ${cases.work.policy}, ${threadsText(threads)}`;
    const ratio = work.medianMs / without.medianMs;
    yield { suite, case: name, ...milliseconds(work), unit: 'ms', ratio, ratioOf: policy };
  }
}

async function* measureDecode(
  context: SuiteContext,
  policy: string,
  lengths: readonly number[],
  threads: number,
): AsyncIterable<Figure> {
  const crossover = new Crossover(context, policy);
  for (const numKeys of lengths) {
    const { kvDType, quick } = context.options;
    const policyCase = { ...decodeShape, numLayers: quick ? 1 : decodeLayers, policy, numKeys, kvDType };
    const cases = { work: policyCase, dense: { ...policyCase, policy: 'dense' } };
    const { timings } = await measureCases(context, cases, threads, 15);
    const [work, dense] = [timings['work']!, timings['dense']!];
    const ratio = work.medianMs / dense.medianMs;
    crossover.add(numKeys, ratio);
    context.plot(crossoverPlot, policy, numKeys, ratio);
    const name = `token after ${numKeys}, ${policy}, ${threadsText(threads)}`;
    yield { suite, case: name, ...milliseconds(work, policyCase.numLayers), unit: 'ms', ratio, ratioOf: 'dense' };
    if (policy === sparq) yield* measureSpeedUp(context, name, numKeys, { work, dense });
  }
  yield* crossover.figures();
}

/** Elements moved by SparQ, the resulting limit of the speed-up, and the measured speed-up. */
function* measureSpeedUp(
  context: SuiteContext,
  name: string,
  numKeys: number,
  { work, dense }: { readonly work: Timing; readonly dense: Timing },
): Iterable<Figure> {
  const transfers = sparqTransfers(parsePolicy(sparq) as SparqPolicy, numKeys, decodeShape.headDim);
  const { formula, possibleSpeedup } = transfers;
  const moved = { value: formula, best: formula, unit: 'elements' };
  const ofDense = { ratio: formula / transfers.dense, ratioOf: `dense, ${transfers.dense}` };
  yield { suite, case: `${name}: moved per KV head`, ...moved, ...ofDense };
  const measured = { value: dense.medianMs / work.medianMs, best: dense.minMs / work.minMs, unit: 'x' };
  const ofPossible = {
    ratio: measured.value / possibleSpeedup,
    ratioOf: `limit by elements, ${possibleSpeedup.toFixed(2)}`,
  };
  yield { suite, case: `${name}: speed-up`, ...measured, ...ofPossible };
  context.plot(sparqPlot, `measured, ${sparq}`, numKeys, measured.value);
  context.plot(sparqPlot, 'possible', numKeys, possibleSpeedup);
}

/** Time relative to dense below which a policy is faster: closer to 1 is noise. */
const paying = 0.95;

/** The context length from which a policy is faster than dense attention. */
class Crossover {
  readonly #context: SuiteContext;
  readonly #name: string;
  #from: number | undefined;
  #longest = 1;

  constructor(context: SuiteContext, name: string) {
    this.#context = context;
    this.#name = name;
  }

  /** Lengths come in ascending order. */
  add(length: number, ratio: number): void {
    this.#longest = length;
    if (ratio < paying) this.#from ??= length;
    else this.#from = undefined; // it must stay faster from there on
  }

  *figures(): Iterable<Figure> {
    const [from, longest] = [this.#from, this.#longest];
    if (from === undefined) {
      this.#context.say(`${this.#name}: no gain up to ${longest} keys`);
      return;
    }
    const value = { value: from, best: from, unit: 'keys', ratio: from / longest, ratioOf: `${longest} keys` };
    yield { suite, case: `${this.#name}: faster from`, ...value };
  }
}

/** Causal query-key pairs of the last `numQueries` queries. */
function pairsOfLast(numQueries: number, numKeys: number): number {
  return numQueries * numKeys - (numQueries * (numQueries - 1)) / 2;
}

async function measureCases(
  context: SuiteContext,
  cases: Readonly<Record<string, PolicyCase>>,
  threads: number,
  rounds: number,
  countsPairs = true,
): Promise<{ timings: Record<string, Timing>; pairs: number }> {
  const backend = await context.createBackend(threads, 'workers');
  try {
    const contenders: Record<string, Contender> = {};
    let pairs = 0;
    for (const [name, policyCase] of Object.entries(cases)) {
      const loaded = await loadPolicy(backend, policyCase);
      contenders[name] = loaded;
      if (name !== 'work' || policyCase.phase !== 'prefill' || !countsPairs) continue;
      await loaded.run();
      pairs = await pairsOf(loaded, policyCase.numTokens);
    }
    return { timings: await measure(contenders, measureOptions(context.options, rounds)), pairs };
  } finally {
    await backend.dispose();
  }
}
