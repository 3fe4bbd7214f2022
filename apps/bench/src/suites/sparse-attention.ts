import { parsePolicy, sparqTransfers, type SparqPolicy } from '@winnow/sparse-attention';
import { milliseconds, perSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender, type Timing } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { loadPolicy, pairsOf, type PolicyCase } from './attention-programs.js';

const suite = 'sparse-attention';

/** The problem of the specification: window 128, blocks of 64. */
const table = { phase: 'prefill', numHeads: 8, numKvHeads: 8, headDim: 64, numLayers: 1 } as const;
const tablePolicy = 'subquadratic:window=128,block=64,globals=0,landmarks=compat';
/** Longest prompt that dense attention is measured on; beyond it pairs tell the ratio. */
const longestDense = 8192;

/** Layers of a Llama with 1.1 thousand million parameters, enough of them that calling a program does not count. */
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

/** Attention under policies: the table of the subquadratic specification, and decoding over long contexts. */
export const sparseAttention: Suite = {
  name: suite,
  summary: 'attention policies: pairs and time of prompts, time of a token against context length, from where they pay',
  async *run(context) {
    const { quick, contexts, threads } = context.options;
    const [fewest = 1] = threads;
    const prompts = contexts ?? (quick ? [128, 192] : [512, 1024, 2048, 4096, 8192, 16384, 32768]);
    yield* measureTable(context, prompts, fewest);
    for (const policy of promptPolicies) yield* measurePrompts(context, policy, prompts, fewest);
    const lengths = contexts ?? (quick ? [128, 192] : [512, 1024, 2048, 4096, 8192, 32768]);
    for (const policy of decodePolicies) yield* measureDecode(context, policy, lengths, fewest);
  },
};

async function* measureTable(
  context: SuiteContext,
  lengths: readonly number[],
  threads: number,
): AsyncIterable<Figure> {
  let first: number | undefined;
  for (const numKeys of lengths) {
    const policyCase = { ...table, policy: tablePolicy, numKeys, numTokens: numKeys, kvDType: 'f32' } as const;
    const cases = {
      work: policyCase,
      ...(numKeys <= longestDense ? { dense: { ...policyCase, policy: 'dense' } } : {}),
    };
    const { timings, pairs } = await measureCases(context, cases, threads, numKeys > 2048 ? 3 : 7);
    const work = timings['work']!;
    const dense = timings['dense'];
    const densePairs = (numKeys * (numKeys + 1)) / 2;
    const name = `prompt of ${numKeys}, ${threadsText(threads)}`;
    const ratio = dense === undefined ? pairs / densePairs : work.medianMs / dense.medianMs;
    const ratioOf = dense === undefined ? 'dense, by pairs' : 'dense';
    yield { suite, case: name, ...milliseconds(work), unit: 'ms', ratio, ratioOf };
    const perHead = `${name}: pairs of a head`;
    yield {
      suite,
      case: perHead,
      value: pairs,
      best: pairs,
      unit: 'pairs',
      ratio: pairs / densePairs,
      ratioOf: 'dense',
    };
    const perPair = milliseconds(work, (pairs * table.numHeads) / 1e6);
    first ??= perPair.value;
    const shortest = `the same for ${lengths[0]}`;
    yield { suite, case: `${name}: pair`, ...perPair, unit: 'ns', ratio: perPair.value / first, ratioOf: shortest };
  }
}

async function* measurePrompts(
  context: SuiteContext,
  policy: string,
  lengths: readonly number[],
  threads: number,
): AsyncIterable<Figure> {
  for (const numKeys of lengths.filter((length) => length <= longestDense)) {
    const work = { ...promptShape, policy, numKeys, numTokens: numKeys, kvDType: context.options.kvDType };
    const cases = { work, dense: { ...work, policy: 'dense' } };
    const { timings } = await measureCases(context, cases, threads, numKeys > 2048 ? 3 : 7, false);
    const [sparse, dense] = [perSecond(numKeys, timings['work']!), perSecond(numKeys, timings['dense']!)];
    const name = `prompt of ${numKeys}, ${policy}, ${threadsText(threads)}`;
    yield { suite, case: name, ...sparse, unit: 'tokens/s', ratio: sparse.value / dense.value, ratioOf: 'dense' };
  }
}

async function* measureDecode(
  context: SuiteContext,
  policy: string,
  lengths: readonly number[],
  threads: number,
): AsyncIterable<Figure> {
  let crossover: number | undefined;
  for (const numKeys of lengths) {
    const { kvDType, quick } = context.options;
    const policyCase = { ...decodeShape, numLayers: quick ? 1 : decodeLayers, policy, numKeys, kvDType };
    const cases = { work: policyCase, dense: { ...policyCase, policy: 'dense' } };
    const { timings } = await measureCases(context, cases, threads, 15);
    const [work, dense] = [timings['work']!, timings['dense']!];
    const ratio = work.medianMs / dense.medianMs;
    if (ratio < 1) crossover ??= numKeys;
    else crossover = undefined; // it has to pay from there on
    const name = `token after ${numKeys}, ${policy}, ${threadsText(threads)}`;
    yield { suite, case: name, ...milliseconds(work, policyCase.numLayers), unit: 'ms', ratio, ratioOf: 'dense' };
    if (policy !== sparq) continue;
    const { possibleSpeedup } = sparqTransfers(parsePolicy(policy) as SparqPolicy, numKeys, decodeShape.headDim);
    const reached = { value: 1 / ratio, best: dense.minMs / work.minMs };
    const possible = `possible by elements, ${possibleSpeedup.toFixed(2)}`;
    yield {
      suite,
      case: `${name}: speed-up`,
      ...reached,
      unit: 'x',
      ratio: 1 / ratio / possibleSpeedup,
      ratioOf: possible,
    };
  }
  const longest = lengths[lengths.length - 1] ?? 1;
  if (crossover === undefined) {
    context.say(`${policy}: no gain up to ${longest} keys`);
    return;
  }
  const [value, ratio] = [crossover, crossover / longest];
  yield { suite, case: `${policy}: pays from`, value, best: value, unit: 'keys', ratio, ratioOf: `${longest} keys` };
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
