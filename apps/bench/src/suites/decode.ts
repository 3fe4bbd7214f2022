import { sizeOf } from '@winnow/tensor';
import { gigaPerSecond, perSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender, type Timing } from '../harness/measure.js';
import {
  measureOptions,
  readOf,
  sidesOf,
  threadsText,
  type Side,
  type Suite,
  type SuiteContext,
} from '../harness/suite.js';
import { decodeInBrowser } from './in-browser.js';
import { greedy, loadContenders, modelCases, type LoadedContenders } from './end-to-end.js';
import { decodeBytes } from './model-cost.js';

const suite = 'decode';

/** Decodes after contexts of given lengths. All lengths are measured in turns, each with its own cache. */
export const decode: Suite = {
  name: suite,
  summary: 'generation with whole models at several context lengths: tokens per second',
  async *run(context) {
    const measureOne = context.options.peer === 'wllama' ? decodeInBrowser : measureModel;
    for (const modelCase of modelCases(context)) yield* measureOne(context, modelCase);
  },
};

type Timings = Readonly<Record<string, Timing>>;

async function* measureModel(
  context: SuiteContext,
  modelCase: Parameters<typeof loadContenders>[1],
): AsyncIterable<Figure> {
  const { options, machine } = context;
  const lengths = (options.contexts ?? (options.quick ? [16, 64] : [128, 2048])).toSorted((a, b) => a - b);
  const count = options.quick ? 4 : 16;
  const sizes = lengths.map((length) => length + count);
  const loaded = await loadContenders(context, modelCase, sizes);
  const { others, model, threads } = loaded;
  try {
    const contenders = await contendersOf(context, loaded, lengths, count);
    const read = readOf(sidesOf(context).at(-1) as Side);
    const memory = await machine.probe(read, threads);
    const timings = await measure({ ...contenders, memory }, { ...measureOptions(options, 7), warmups: 1 });
    const embeddingBytes = sizeOf(modelCase.dtype, model.config.vocabSize * model.config.hiddenDim);
    const peak = gigaPerSecond(memory.amount, timings['memory']!).value;
    for (const length of lengths) {
      const own = timings[`winnow ${length}`]!;
      const speed = perSecond(count, own);
      // the share of the cache that a policy reads varies: the weights are the lower bound
      const numKeys = options.attention === undefined ? length : 0;
      const rate = gigaPerSecond(decodeBytes(model, embeddingBytes, numKeys) * count, own).value;
      const caseName = `${loaded.name} @${length}`;
      const ratioOf = `${read}, ${threadsText(threads)}`;
      yield { suite, case: caseName, ...speed, unit: 'tokens/s', ratio: rate / peak, ratioOf };
      for (const { name } of others) {
        const other = perSecond(count, timings[`${name} ${length}`]!);
        const ratio = speed.value / other.value;
        yield { suite, case: caseName, ...speed, unit: 'tokens/s', ratio, ratioOf: name };
        const otherName = `${caseName}: ${name}`;
        yield { suite, case: otherName, ...other, unit: 'tokens/s', ratio: 1 / ratio, ratioOf: 'winnow' };
      }
    }
    yield* contextCosts(loaded, lengths, count, timings);
  } finally {
    await loaded.dispose();
  }
}

/** Fills the caches; each contender then decodes `count` tokens after its context, which is restored. */
async function contendersOf(
  { say }: SuiteContext,
  { name, others, sessions, tokens }: LoadedContenders,
  lengths: readonly number[],
  count: number,
): Promise<Record<string, Contender>> {
  const contenders: Record<string, Contender> = {};
  for (const [slot, length] of lengths.entries()) {
    say(`${name}: context of ${length} tokens`);
    const prompt = tokens(length);
    const session = sessions[slot]!;
    await greedy(session, prompt, 1);
    // the last token of the prompt is recomputed each time: `count` steps in total
    contenders[`winnow ${length}`] = { run: async () => (await greedy(session, prompt, count)).timeMs };
    for (const other of others) {
      await other.setContext(slot, prompt.slice(0, -1));
      const run = async (): Promise<number> => (await other.decode(slot, prompt.at(-1)!, count)).timeMs;
      contenders[`${other.name} ${length}`] = { run };
    }
  }
  return contenders;
}

/** The cost per token of a longer context: attention, since everything else is equal. */
function* contextCosts(
  { name, others }: LoadedContenders,
  [from = 0, ...longer]: readonly number[],
  count: number,
  timings: Timings,
): Generator<Figure> {
  for (const to of longer) {
    const cost = (contender: string, field: 'medianMs' | 'minMs'): number =>
      (timings[`${contender} ${to}`]![field] - timings[`${contender} ${from}`]![field]) / count;
    const value = cost('winnow', 'medianMs');
    const caseName = `${name} @${to}: beyond @${from}`;
    const figure = { suite, case: caseName, value, best: cost('winnow', 'minMs'), unit: 'ms/token' };
    const whole = timings[`winnow ${to}`]!.medianMs / count;
    yield { ...figure, ratio: value / whole, ratioOf: `the total time per token @${to}` };
    for (const other of others) yield { ...figure, ratio: value / cost(other.name, 'medianMs'), ratioOf: other.name };
  }
}
