/** Speculative and plain decoding with the demo model, measured in turns on the same tokens. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type Speculative } from '@winnow/engine';
import { perSecond, type Figure } from '../../harness/figure.js';
import { measure, type Timing } from '../../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../../harness/suite.js';
import { longestAcceptance } from './acceptance.js';
import { longContexts } from './long-contexts.js';
import { tasks, type Copied, type Task } from './tasks.js';
import { acceptanceFigure, checkEqual, generate, stepFigures, type Run } from './runs.js';

const suite = 'speculation';
/** Tokens per window over which the lowest speed is measured. */
const windowTokens = 64;
const policy = 'streaming:window=128,sinks=4';
/** `again` is plain decoding once more, whose slowest window shows the noise of the measurement. */
const kinds = ['lookup', 'self', 'again'] as const;
type Kind = (typeof kinds)[number];

export const speculation: Suite = {
  name: suite,
  summary:
    'speculative and plain decoding of the demo model: tokens per second, lowest speed over 64 tokens, acceptance',
  async *run(context) {
    if (context.options.models !== undefined) return yield* longContexts(context);
    for (const dtype of context.options.quick ? (['f16'] as const) : (['f16', 'q8_0'] as const)) {
      for (const task of tasks) yield* measureTask(context, dtype, task);
    }
    yield* longestAcceptance(context);
  },
};

async function* measureTask(context: SuiteContext, dtype: 'f16' | 'q8_0', task: Task): AsyncIterable<Figure> {
  const { options } = context;
  const threads = options.threads.at(-1) ?? 1;
  const backend = await context.createBackend(threads, 'default');
  const quantize = dtype === 'f16' ? {} : { quantize: dtype };
  const speculative: Speculative = `self=${policy}`;
  const model = await loadModel(demoModelUrl, { backend, context: 1024, maxSessions: 1, speculative, ...quantize });
  const count = options.quick ? windowTokens : 512;
  const runs: Record<'plain' | Kind, Run[]> = { plain: [], lookup: [], self: [], again: [] };
  const contender = (kind: 'plain' | Kind) => ({
    run: async (): Promise<number> => {
      const speculative = kind === 'lookup' || kind === 'self' ? kind : 'off';
      const run = await generate(model, task.prompt, speculative, count, task.options);
      runs[kind].push(run);
      return run.timesMs.at(-1)!;
    },
  });
  try {
    const names = ['plain', ...kinds] as const;
    const contenders = Object.fromEntries(names.map((name) => [name, contender(name)]));
    const timings = await measure(contenders, measureOptions(options, 5));
    const title = `${task.name}, demo model ${dtype}, ${threadsText(threads)}`;
    const right = task.countRight?.(model.tokenizer.decode(runs.plain[0]!.tokens));
    if (right !== undefined) yield copied(title, right);
    for (const kind of kinds) {
      const numEqual = checkEqual(kind, runs.plain, runs[kind]);
      const name = `${kind === 'again' ? 'plain again' : kind}, ${title}`;
      yield* figuresOf(name, count, timings, kind, runs);
      yield equalTokens(name, numEqual);
    }
  } finally {
    await model.dispose();
    await backend.dispose();
  }
}

/** Tokens of all generations that were those of plain decoding; the bench ends with an error if one was not. */
function equalTokens(task: string, value: number): Figure {
  return {
    suite,
    case: `${task}: same tokens`,
    value,
    best: value,
    unit: 'tokens',
    ratio: 1,
    ratioOf: 'those compared',
  };
}

function copied(title: string, { numRight, numCopied }: Copied): Figure {
  const percent = (100 * numRight) / numCopied;
  const values = { value: percent, best: percent, unit: '%', ratio: numRight / numCopied, ratioOf: 'digits' };
  return { suite, case: `${title}: copied right`, ...values };
}

function* figuresOf(
  task: string,
  count: number,
  timings: Readonly<Record<string, Timing>>,
  kind: Kind,
  runs: Readonly<Record<'plain' | Kind, readonly Run[]>>,
): Iterable<Figure> {
  const [plain, drafted] = [perSecond(count, timings['plain']!), perSecond(count, timings[kind]!)];
  const figure = { suite, case: task, ratioOf: 'plain decoding' };
  yield { ...figure, ...drafted, unit: 'tokens/s', ratio: drafted.value / plain.value };
  const lowest = lowestSpeed(runs.plain, runs[kind]);
  const windows = { ...figure, case: `${task}: slowest ${windowTokens} tokens` };
  yield { ...windows, value: lowest.speed, best: lowest.speed, unit: 'tokens/s', ratio: lowest.ratio };
  if (kind === 'again') return;
  yield acceptanceFigure(task, runs[kind]);
  for (const [, step] of stepFigures(task, runs[kind], timings['plain']!.medianMs / count)) yield step;
}

/** The lowest speed of the median run with drafts over a window, also relative to the same tokens without drafts. */
function lowestSpeed(plain: readonly Run[], drafted: readonly Run[]): { speed: number; ratio: number } {
  const timeOf = (runs: readonly Run[], begin: number): number => {
    const times = runs.map(
      ({ timesMs }) => timesMs[begin + windowTokens - 1]! - (begin === 0 ? 0 : timesMs[begin - 1]!),
    );
    return times.toSorted((a, b) => a - b)[times.length >> 1]!;
  };
  let lowest = { speed: 0, ratio: Infinity };
  for (let begin = 0; begin + windowTokens <= drafted[0]!.timesMs.length; begin++) {
    const timeMs = timeOf(drafted, begin);
    const ratio = timeOf(plain, begin) / timeMs;
    if (ratio < lowest.ratio) lowest = { speed: (1000 * windowTokens) / timeMs, ratio };
  }
  return lowest;
}
