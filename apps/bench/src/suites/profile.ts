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

/** The prompts of `--tokens`, one run each; the floor of the others takes the products' rate from the shortest one. */
export const profile: Suite = {
  name: suite,
  summary: 'time of prompts by op, rates of products and attention, and the floor of a long prompt',
  async *run(context) {
    const { options } = context;
    const sides = sidesOf(context).filter(({ isNative }) => isNative === options.native || options.wasm);
    for (const modelCase of modelCases(context)) {
      for (const side of sides) yield* profileModel(context, modelCase, side);
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

async function* profileModel(context: SuiteContext, modelCase: ModelCase, side: Side): AsyncIterable<Figure> {
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
      const policy = options.attention === undefined ? '' : `, ${options.attention}`;
      const name = `${modelCase.name} ${modelCase.dtype}${policy}, ${threadsText(threads)}${side.label} @${length}`;
      yield* figuresOf(name, found, shortest, [
        [products, rates[0] as number],
        [floats, rates[1] as number],
      ]);
      shortest ??= found;
    }
  } finally {
    await close();
  }
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
  const ops = new Map<string, OpTime>();
  for (const [op, { timeMs: end, flops }] of totals(model)) {
    const { timeMs: begin = 0, flops: earlier = 0 } = before.get(op) ?? {};
    ops.set(op, { timeMs: end - begin, flops: flops - earlier });
  }
  const { numLayers, numHeads, headDim } = model.config;
  const attentionFlops = 2 * numTokens * (numTokens + 1) * numLayers * numHeads * headDim;
  return { numTokens, timeMs, ops, attentionFlops: model.attention === 'dense' ? attentionFlops : undefined };
}

function totals(model: Model): Map<string, OpTime> {
  const sums = new Map<string, OpTime>();
  for (const { op, timeMs, flops } of model.profile()) {
    const sum = sums.get(op) ?? { timeMs: 0, flops: 0 };
    sums.set(op, { timeMs: sum.timeMs + timeMs, flops: sum.flops + flops });
  }
  return sums;
}

function sumOf({ ops }: PromptProfile, isIncluded: (op: string) => boolean): OpTime {
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

function* figuresOf(
  name: string,
  found: PromptProfile,
  shortest: PromptProfile | undefined,
  [products, floats]: readonly [Peak, Peak],
): Generator<Figure> {
  const all = sumOf(found, () => true).timeMs;
  const line = (caseName: string, value: number, unit: string, ratio: number, ratioOf: string): Figure => ({
    ...{ suite, case: `${name}${caseName}`, value, best: value, unit, ratio, ratioOf },
  });
  yield line('', found.timeMs, 'ms', found.timeMs / all, 'all ops');
  const byTime = [...found.ops].toSorted(([, a], [, b]) => b.timeMs - a.timeMs);
  const isLarge = (op: string): boolean => (found.ops.get(op) as OpTime).timeMs >= minShare * all;
  for (const [op, { timeMs }] of byTime) if (isLarge(op)) yield line(`: ${op}`, timeMs, 'ms', timeMs / all, 'all ops');
  const small = sumOf(found, (op) => !isLarge(op)).timeMs;
  yield line(': other ops', small, 'ms', small / all, 'all ops');
  const rate = (part: string, perMs: number, [{ name: peak, unit, threads }, peakPerMs]: Peak): Figure =>
    line(`: ${part}`, perMs / 1e6, unit, perMs / peakPerMs, `${peak}, ${threadsText(threads)}`);
  const matmuls = sumOf(found, isProduct);
  yield rate('products', matmuls.flops / matmuls.timeMs, products);
  if (found.attentionFlops === undefined) return;
  yield rate('dense attention', found.attentionFlops / sumOf(found, isAttention).timeMs, floats);
  if (shortest === undefined) return;
  const productsMs = (sumOf(shortest, isProduct).timeMs / shortest.numTokens) * found.numTokens;
  const floorMs = productsMs + found.attentionFlops / (floorShare * floats[1]);
  yield line(': floor', floorMs, 'ms', floorMs / found.timeMs, 'the whole prompt');
}
