import type { Backend } from '@winnow/ops';
import { parsePolicy, sparqTransfers, type SparqPolicy } from '@winnow/sparse-attention';
import { milliseconds, perSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender, type Timing } from '../harness/measure.js';
import { measureOptions, sidesOf, threadsText, type Side, type Suite, type SuiteContext } from '../harness/suite.js';
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

/** The delta correction whose cost for a sparse prompt is measured. */
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
  const crossovers = new Crossovers(context, `prompts, ${tablePolicy}`);
  const firsts = new Map<string, number>();
  for (const numKeys of lengths) {
    const work = { ...table, policy: tablePolicy, numKeys, numTokens: numKeys, kvDType: 'f32' } as const;
    const numQueries = numKeys <= longestDense ? numKeys : lastQueries;
    const dense = { ...work, policy: 'dense', numTokens: numQueries };
    const { sides, pairs } = await measureCases(context, { work, dense }, threads, numKeys > 2048 ? 3 : 7);
    const densePairs = pairsOfLast(numKeys, numKeys);
    const scale = densePairs / pairsOfLast(numQueries, numKeys);
    const prompt = `prompt of ${numKeys}, ${threadsText(threads)}`;
    const perHead = { case: `${prompt}: pairs of a head`, ratio: pairs / densePairs, ratioOf: 'dense' };
    yield { suite, ...perHead, value: pairs, best: pairs, unit: 'pairs' };
    for (const { label, work: measured, dense: ofDense, gain } of sides) {
      const denseMs = ofDense.medianMs * scale;
      const name = `${prompt}${label}`;
      const ratio = measured.medianMs / denseMs;
      const ratioOf = numQueries === numKeys ? 'dense' : `dense, extrapolated from its last ${numQueries} queries`;
      yield { suite, case: name, ...milliseconds(measured), unit: 'ms', ratio, ratioOf };
      context.plot(promptTimePlot, `subquadratic${label}`, numKeys, measured.medianMs);
      context.plot(promptTimePlot, `dense${label}`, numKeys, denseMs);
      crossovers.add(label, numKeys, ratio);
      const perPair = milliseconds(measured, (pairs * table.numHeads) / 1e6);
      const first = firsts.get(label) ?? perPair.value;
      firsts.set(label, first);
      const shortest = `the same for ${lengths[0]}`;
      yield { suite, case: `${name}: pair`, ...perPair, unit: 'ns', ratio: perPair.value / first, ratioOf: shortest };
      yield* gainFigures(name, threads, gain);
    }
  }
  yield* crossovers.figures();
}

async function* measurePrompts(
  context: SuiteContext,
  policy: string,
  lengths: readonly number[],
  threads: number,
): AsyncIterable<Figure> {
  const crossovers = new Crossovers(context, `prompts, ${policy}`);
  for (const numKeys of lengths.filter((length) => length <= longestDense)) {
    const work = { ...promptShape, policy, numKeys, numTokens: numKeys, kvDType: context.options.kvDType };
    const cases = { work, dense: { ...work, policy: 'dense' } };
    const { sides } = await measureCases(context, cases, threads, numKeys > 2048 ? 3 : 7, false);
    for (const { label, gain, ...timings } of sides) {
      const [sparse, dense] = [perSecond(numKeys, timings.work), perSecond(numKeys, timings.dense)];
      const name = `prompt of ${numKeys}, ${policy}, ${threadsText(threads)}${label}`;
      yield { suite, case: name, ...sparse, unit: 'tokens/s', ratio: sparse.value / dense.value, ratioOf: 'dense' };
      context.plot(promptRatePlot, `${policy}${label}`, numKeys, sparse.value);
      context.plot(promptRatePlot, `dense with ${policy.split(':', 1)[0]}${label}`, numKeys, dense.value);
      crossovers.add(label, numKeys, dense.value / sparse.value);
      yield* gainFigures(name, threads, gain);
    }
  }
  yield* crossovers.figures();
}

async function* measureCorrection(
  context: SuiteContext,
  policy: string,
  lengths: readonly number[],
  threads: number,
): AsyncIterable<Figure> {
  for (const numKeys of lengths.filter((length) => length <= longestDense)) {
    const plain = { ...promptShape, policy, numKeys, numTokens: numKeys, kvDType: context.options.kvDType };
    const cases = { work: { ...plain, policy: `${policy},${correction}` }, dense: plain };
    const { sides } = await measureCases(context, cases, threads, numKeys > 2048 ? 3 : 7, false);
    for (const { label, work, dense: without, gain } of sides) {
      const name = `prompt of ${numKeys}, ${cases.work.policy}, ${threadsText(threads)}${label}`;
      const ratio = work.medianMs / without.medianMs;
      yield { suite, case: name, ...milliseconds(work), unit: 'ms', ratio, ratioOf: policy };
      yield* gainFigures(name, threads, gain);
    }
  }
}

async function* measureDecode(
  context: SuiteContext,
  policy: string,
  lengths: readonly number[],
  threads: number,
): AsyncIterable<Figure> {
  const crossovers = new Crossovers(context, policy);
  for (const numKeys of lengths) {
    const { kvDType, quick } = context.options;
    const policyCase = { ...decodeShape, numLayers: quick ? 1 : decodeLayers, policy, numKeys, kvDType };
    const cases = { work: policyCase, dense: { ...policyCase, policy: 'dense' } };
    const { sides } = await measureCases(context, cases, threads, 15);
    for (const { label, work, dense, gain } of sides) {
      const ratio = work.medianMs / dense.medianMs;
      crossovers.add(label, numKeys, ratio);
      context.plot(crossoverPlot, `${policy}${label}`, numKeys, ratio);
      const name = `token after ${numKeys}, ${policy}, ${threadsText(threads)}${label}`;
      yield { suite, case: name, ...milliseconds(work, policyCase.numLayers), unit: 'ms', ratio, ratioOf: 'dense' };
      if (policy === sparq) yield* measureSpeedUp(context, name, numKeys, { label, work, dense });
      yield* gainFigures(name, threads, gain);
    }
  }
  yield* crossovers.figures();
}

/** A native kernel against that of WebAssembly. */
function* gainFigures(name: string, threads: number, gain: SideTimings['gain']): Iterable<Figure> {
  if (gain === undefined) return;
  const ratioOf = `WebAssembly, ${threadsText(threads)}`;
  yield { suite, case: `${name}: gain`, ...gain, unit: 'x', ratio: gain.value, ratioOf };
}

/** Elements moved by SparQ, the resulting limit of the speed-up, and the measured speed-up. */
function* measureSpeedUp(
  context: SuiteContext,
  name: string,
  numKeys: number,
  { label, work, dense }: Pick<SideTimings, 'label' | 'work' | 'dense'>,
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
  context.plot(sparqPlot, `measured, ${sparq}${label}`, numKeys, measured.value);
  context.plot(sparqPlot, 'possible', numKeys, possibleSpeedup);
}

/** Time relative to dense below which a policy counts as faster; ratios closer to 1 are noise. */
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

/** A crossover for each side. */
class Crossovers {
  readonly #context: SuiteContext;
  readonly #name: string;
  readonly #sides = new Map<string, Crossover>();

  constructor(context: SuiteContext, name: string) {
    this.#context = context;
    this.#name = name;
  }

  /** Lengths come in ascending order. */
  add(label: string, length: number, ratio: number): void {
    const side = this.#sides.get(label) ?? new Crossover(this.#context, `${this.#name}${label}`);
    this.#sides.set(label, side);
    side.add(length, ratio);
  }

  *figures(): Iterable<Figure> {
    for (const side of this.#sides.values()) yield* side.figures();
  }
}

/** Causal query-key pairs of the last `numQueries` queries. */
function pairsOfLast(numQueries: number, numKeys: number): number {
  return numQueries * numKeys - (numQueries * (numQueries - 1)) / 2;
}

interface SideTimings extends Side {
  readonly work: Timing;
  readonly dense: Timing;
  /** How many times faster than WebAssembly, of native kernels. */
  readonly gain: { readonly value: number; readonly best: number } | undefined;
}

/** @param cases the case of interest, and the one that it is compared with */
async function measureCases(
  context: SuiteContext,
  cases: Readonly<Record<'work' | 'dense', PolicyCase>>,
  threads: number,
  rounds: number,
  countsPairs = true,
): Promise<{ sides: SideTimings[]; pairs: number }> {
  const backends: Backend[] = [];
  try {
    const contenders: Record<string, Contender> = {};
    let pairs = 0;
    for (const { label, isNative } of sidesOf(context)) {
      const backend = await context.createBackend(threads, 'workers', isNative);
      backends.push(backend);
      for (const [name, policyCase] of Object.entries(cases)) {
        const loaded = await loadPolicy(backend, policyCase);
        contenders[`${name}${label}`] = loaded;
        if (name !== 'work' || policyCase.phase !== 'prefill' || !countsPairs) continue;
        await loaded.run();
        pairs = await pairsOf(loaded, policyCase.numTokens);
      }
    }
    const timings = await measure(contenders, measureOptions(context.options, rounds));
    const of = (name: string, label = ''): Timing => timings[`${name}${label}`] as Timing;
    const gainOf = ({ medianMs, minMs }: Timing): SideTimings['gain'] => {
      return { value: of('work').medianMs / medianMs, best: of('work').minMs / minMs };
    };
    const sides = sidesOf(context).map((side) => {
      const work = of('work', side.label);
      return { ...side, work, dense: of('dense', side.label), gain: side.isNative ? gainOf(work) : undefined };
    });
    return { sides, pairs };
  } finally {
    for (const backend of backends) await backend.dispose();
  }
}
