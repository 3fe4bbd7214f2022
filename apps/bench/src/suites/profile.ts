/** Where the time of a prompt goes, op by op, and how far a long prompt is from its floor. */
import type { Model, Session } from '@winnow/engine';
import type { Figure } from '../harness/figure.js';
import { measure } from '../harness/measure.js';
import { sidesOf, threadsText, type Side, type Suite, type SuiteContext } from '../harness/suite.js';
import type { Probe } from '../roofline/machine.js';
import { greedy, loadProfiled, modelCases, randomTokens, uniquePrompt, type ModelCase } from './end-to-end.js';
import { peakOf } from './matmul-cases.js';

const suite = 'profile';
/** Ops below this share of the time are listed together. */
const minShare = 0.005;
/** The share of the multiply-add peak at which attention counts in the floor. */
const floorShare = 0.8;

/** Number of tokens that are generated after each of `--contexts`. */
const numGenerated = 16;

/**
 * The prompts of `--tokens`, one run each; the floor of the others takes the products' rate from the shortest one. With `--contexts`
 * instead tokens that are generated after these.
 */
export const profile: Suite = {
  name: suite,
  summary: 'time of prompts by op, rates of products and attention, and the floor of a long prompt',
  async *run(context) {
    const { options } = context;
    const sides = sidesOf(context).filter(({ isNative }) => isNative === options.native || options.wasm);
    for (const modelCase of modelCases(context)) {
      const profileOne = options.contexts === undefined ? profilePrompts : profileTokens;
      for (const side of sides) yield* profileOne(context, modelCase, side);
    }
  },
};

interface OpTime {
  timeMs: number;
  flops: number;
}

/** Operations and milliseconds of one prompt. */
interface PromptProfile {
  readonly numTokens: number;
  readonly timeMs: number;
  readonly ops: ReadonlyMap<string, OpTime>;
  /** Of dense attention: a multiply-add of each query with each key up to it, and one with its value. */
  readonly attentionFlops: number | undefined;
}

async function* profilePrompts(context: SuiteContext, modelCase: ModelCase, side: Side): AsyncIterable<Figure> {
  const { options, machine } = context;
  const threads = options.threads.at(-1) ?? 1;
  const lengths = (options.tokens ?? (options.quick ? [16, 64] : [512, 8192])).toSorted((a, b) => a - b);
  const { model, sessions, close } = await loadProfiled(context, modelCase, Math.max(...lengths) + 1, side.isNative);
  const session = sessions[0] as Session;
  try {
    const products = await machine.probe(peakOf(modelCase.dtype, side), threads);
    const floats = await machine.probe(side.isNative ? 'native f32 fma' : 'f32 relaxed madd', threads);
    await promptProfile(model, session, Math.min(...lengths), 0);
    let shortest: PromptProfile | undefined;
    for (const [index, length] of lengths.entries()) {
      const found = await promptProfile(model, session, length, index + 1);
      const rates = await ratesOf([products, floats]);
      yield* figuresOf(nameOf(context, modelCase, side, length), found, shortest, [
        [products, rates[0] as number],
        [floats, rates[1] as number],
      ]);
      shortest ??= found;
    }
  } finally {
    await close();
  }
}

async function* profileTokens(context: SuiteContext, modelCase: ModelCase, side: Side): AsyncIterable<Figure> {
  const contexts = context.options.contexts ?? [];
  const { model, sessions, close } = await loadProfiled(
    context,
    modelCase,
    Math.max(...contexts) + numGenerated,
    side.isNative,
  );
  const session = sessions[0] as Session;
  try {
    for (const length of contexts) {
      session.reset();
      const prompt = randomTokens(model.config.vocabSize, length);
      await greedy(session, prompt, numGenerated);
      const before = totals(model);
      // the last token of the prompt is recomputed
      const { timeMs } = await greedy(session, prompt, numGenerated);
      yield* timesOf(nameOf(context, modelCase, side, length), timeMs, opsSince(before, model), numGenerated);
    }
  } finally {
    await close();
  }
}

function nameOf({ options }: SuiteContext, { name, dtype }: ModelCase, { label }: Side, length: number): string {
  const policy = options.attention === undefined ? '' : `, ${options.attention}`;
  return `${name} ${dtype}${policy}, ${threadsText(options.threads.at(-1) ?? 1)}${label} @${length}`;
}

/** Operations per millisecond. */
async function ratesOf(probes: readonly Probe[]): Promise<number[]> {
  const timings = await measure(Object.fromEntries(probes.map((probe) => [probe.name, probe])), {
    warmups: 1,
    rounds: 5,
  });
  return probes.map(({ name, amount }) => amount / timings[name]!.medianMs);
}

async function promptProfile(model: Model, session: Session, numTokens: number, index: number): Promise<PromptProfile> {
  const before = totals(model);
  session.reset();
  const prompt = uniquePrompt(randomTokens(model.config.vocabSize, numTokens), index);
  const { timeMs } = await greedy(session, prompt, 1);
  const ops = opsSince(before, model);
  const { numLayers, numHeads, headDim } = model.config;
  const attentionFlops = 2 * numTokens * (numTokens + 1) * numLayers * numHeads * headDim;
  return { numTokens, timeMs, ops, attentionFlops: model.attention === 'dense' ? attentionFlops : undefined };
}

function opsSince(before: ReadonlyMap<string, OpTime>, model: Model): Map<string, OpTime> {
  const ops = new Map<string, OpTime>();
  for (const [op, { timeMs: end, flops }] of totals(model)) {
    const { timeMs: begin = 0, flops: earlier = 0 } = before.get(op) ?? {};
    ops.set(op, { timeMs: end - begin, flops: flops - earlier });
  }
  return ops;
}

function totals(model: Model): Map<string, OpTime> {
  const sums = new Map<string, OpTime>();
  for (const { op, timeMs, flops } of model.profile()) {
    const sum = sums.get(op) ?? { timeMs: 0, flops: 0 };
    sums.set(op, { timeMs: sum.timeMs + timeMs, flops: sum.flops + flops });
  }
  return sums;
}

function sumOf(ops: ReadonlyMap<string, OpTime>, isIncluded: (op: string) => boolean): OpTime {
  const sum: OpTime = { timeMs: 0, flops: 0 };
  for (const [op, { timeMs, flops }] of ops) {
    if (!isIncluded(op)) continue;
    sum.timeMs += timeMs;
    sum.flops += flops;
  }
  return sum;
}

const isAttention = (op: string): boolean => /attention/i.test(op);
const isProduct = (op: string): boolean => /matmul/i.test(op);

type Peak = readonly [probe: Probe, opsPerMs: number];

/** Times of ops, per token if there are several runs of one. */
function* timesOf(
  name: string,
  timeMs: number,
  ops: ReadonlyMap<string, OpTime>,
  numTokens: number | undefined,
): Generator<Figure> {
  const all = sumOf(ops, () => true).timeMs;
  const line = (caseName: string, opMs: number): Figure => {
    const value = opMs / (numTokens ?? 1);
    const unit = numTokens === undefined ? 'ms' : 'ms/token';
    return { suite, case: `${name}${caseName}`, value, best: value, unit, ratio: opMs / all, ratioOf: 'all ops' };
  };
  yield line('', timeMs);
  const isLarge = (op: string): boolean => (ops.get(op) as OpTime).timeMs >= minShare * all;
  for (const [op, { timeMs: opMs }] of [...ops].toSorted(([, a], [, b]) => b.timeMs - a.timeMs)) {
    if (isLarge(op)) yield line(`: ${op}`, opMs);
  }
  yield line(': other ops', sumOf(ops, (op) => !isLarge(op)).timeMs);
}

function* figuresOf(
  name: string,
  found: PromptProfile,
  shortest: PromptProfile | undefined,
  [products, floats]: readonly [Peak, Peak],
): Generator<Figure> {
  yield* timesOf(name, found.timeMs, found.ops, undefined);
  const rate = (part: string, perMs: number, [{ name: peak, unit, threads }, peakPerMs]: Peak): Figure => {
    const value = perMs / 1e6;
    const ratio = { ratio: perMs / peakPerMs, ratioOf: `${peak}, ${threadsText(threads)}` };
    return { suite, case: `${name}: ${part}`, value, best: value, unit, ...ratio };
  };
  const matmuls = sumOf(found.ops, isProduct);
  yield rate('products', matmuls.flops / matmuls.timeMs, products);
  if (found.attentionFlops === undefined) return;
  yield rate('dense attention', found.attentionFlops / sumOf(found.ops, isAttention).timeMs, floats);
  if (shortest === undefined) return;
  const productsMs = (sumOf(shortest.ops, isProduct).timeMs / shortest.numTokens) * found.numTokens;
  const floorMs = productsMs + found.attentionFlops / (floorShare * floats[1]);
  const ratio = { ratio: floorMs / found.timeMs, ratioOf: 'the whole prompt' };
  yield { suite, case: `${name}: floor`, value: floorMs, best: floorMs, unit: 'ms', ...ratio };
}
