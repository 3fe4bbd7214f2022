import { sizeOf } from '@winnow/tensor';
import { gigaPerSecond, perSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender, type Timing } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { greedy, loadContenders, modelCases, type LoadedContenders } from './end-to-end.js';
import { decodeBytes } from './model-cost.js';

const suite = 'decode';

/** Tokens after a context of given length, one by one. */
export const decode: Suite = {
  name: suite,
  summary: 'generation with whole models at several context lengths: tokens per second',
  async *run(context) {
    for (const modelCase of modelCases(context)) yield* measureModel(context, modelCase);
  },
};

async function* measureModel(
  context: SuiteContext,
  modelCase: Parameters<typeof loadContenders>[1],
): AsyncIterable<Figure> {
  const { options, machine, say } = context;
  const lengths = (options.contexts ?? (options.quick ? [16, 64] : [128, 2048])).toSorted((a, b) => a - b);
  const count = options.quick ? 4 : 16;
  const loaded = await loadContenders(context, modelCase, Math.max(...lengths) + count);
  const { model, session, peer, threads } = loaded;
  const embeddingBytes = sizeOf(modelCase.dtype, model.config.vocabSize * model.config.hiddenDim);
  let shortest: Record<string, Timing> | undefined;
  try {
    for (const length of lengths) {
      const prompt = loaded.tokens(length);
      say(`${loaded.name}: context of ${length} tokens`);
      await greedy(session, prompt, 1);
      await peer?.setContext(prompt.slice(0, -1));
      const memory = await machine.probe('memory read', threads);
      const contenders: Record<string, Contender> = {
        // the last token of the prompt is computed anew each time: `count` steps in all
        winnow: { run: async () => (await greedy(session, prompt, count)).timeMs },
        memory,
      };
      if (peer !== undefined) {
        contenders['peer'] = { run: async () => (await peer.decode(prompt.at(-1)!, count)).timeMs };
      }
      const timings = await measure(contenders, { ...measureOptions(options, 7), warmups: 1 });
      const own = timings['winnow']!;
      const bytes = decodeBytes(model, embeddingBytes, length) * count;
      const read = gigaPerSecond(bytes, own);
      const peak = gigaPerSecond(memory.amount, timings['memory']!).value;
      const caseName = `${loaded.name} @${length}`;
      const ratioOf = `memory read, ${threadsText(threads)}`;
      const speed = perSecond(count, own);
      yield { suite, case: caseName, ...speed, unit: 'tokens/s', ratio: read.value / peak, ratioOf };
      if (peer !== undefined) {
        const other = perSecond(count, timings['peer']!);
        const ratio = speed.value / other.value;
        yield { suite, case: caseName, ...speed, unit: 'tokens/s', ratio, ratioOf: peer.name };
        const otherName = `${caseName}: ${peer.name}`;
        yield { suite, case: otherName, ...other, unit: 'tokens/s', ratio: 1 / ratio, ratioOf: 'winnow' };
      }
      if (shortest === undefined) shortest = timings;
      else yield* contextCost(loaded, lengths[0]!, length, count, shortest, timings);
    }
  } finally {
    await loaded.dispose();
  }
}

/** What the longer context costs per token: attention, as everything else is the same. */
function* contextCost(
  { name, peer }: LoadedContenders,
  from: number,
  to: number,
  count: number,
  short: Record<string, Timing>,
  long: Record<string, Timing>,
): Generator<Figure> {
  const cost = (contender: string, field: 'medianMs' | 'minMs'): number =>
    (long[contender]![field] - short[contender]![field]) / count;
  const value = cost('winnow', 'medianMs');
  const figure = {
    suite,
    case: `${name} @${to}: beyond @${from}`,
    value,
    best: cost('winnow', 'minMs'),
    unit: 'ms/token',
  };
  const whole = long['winnow']!.medianMs / count;
  yield { ...figure, ratio: value / whole, ratioOf: `the whole time per token @${to}` };
  if (peer !== undefined) yield { ...figure, ratio: value / cost('peer', 'medianMs'), ratioOf: peer.name };
}
