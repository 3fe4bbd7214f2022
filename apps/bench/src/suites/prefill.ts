import { perSecond, type Figure } from '../harness/figure.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, sidesOf, threadsText, type Side, type Suite, type SuiteContext } from '../harness/suite.js';
import { prefillInBrowser } from './in-browser.js';
import { greedy, loadContenders, modelCases, uniquePrompt } from './end-to-end.js';
import { peakOf } from './matmul-cases.js';
import { matmulWeights } from './model-cost.js';

/** Time from a prompt to its first token, with an empty cache. */
export const prefill: Suite = {
  name: 'prefill',
  summary: 'prompt processing of whole models: tokens per second and time to the first token',
  async *run(context) {
    const measureOne = context.options.peer === 'wllama' ? prefillInBrowser : measureModel;
    for (const modelCase of modelCases(context)) yield* measureOne(context, modelCase);
  },
};

/** Beyond this length a whole prompt takes minutes; a part of it compiles the kernels and touches the weights, too. */
const longPrompt = 4096;
const numWarmTokens = 512;

async function* measureModel(
  context: SuiteContext,
  modelCase: Parameters<typeof loadContenders>[1],
): AsyncIterable<Figure> {
  const { options, machine } = context;
  const lengths = options.tokens ?? (options.quick ? [32] : [128, 2048]);
  const loaded = await loadContenders(context, modelCase, [Math.max(...lengths) + 1]);
  const { session, others, threads } = loaded;
  try {
    for (const length of lengths) {
      const tokens = loaded.tokens(length);
      let numPrompts = 0;
      const peak = await machine.probe(peakOf(modelCase.dtype, sidesOf(context).at(-1) as Side), threads);
      const run = async (prompt: readonly number[]): Promise<number> => {
        session.reset();
        return (await greedy(session, uniquePrompt(prompt, numPrompts++), 1)).timeMs;
      };
      const contenders: Record<string, Contender> = { winnow: { run: () => run(tokens) }, peak };
      for (const other of others) contenders[other.name] = { run: async () => (await other.prefill(tokens)).timeMs };
      const rounds = length > 1024 ? 3 : 5;
      const warmups = length > longPrompt ? 0 : 1;
      if (warmups === 0) {
        const part = tokens.slice(0, numWarmTokens);
        await run(part);
        await peak.run();
        for (const other of others) await other.prefill(part);
      }
      const timings = await measure(contenders, { ...measureOptions(options, rounds), warmups });
      const caseName = `${loaded.name} @${length}`;
      const suite = 'prefill';
      const own = perSecond(length, timings['winnow']!);
      const peakOps = peak.amount / timings['peak']!.medianMs;
      const ownOps = (2 * length * matmulWeights(loaded.model.config)) / timings['winnow']!.medianMs;
      const ofPeak = { ratio: ownOps / peakOps, ratioOf: `${peak.name}, ${threadsText(threads)}` };
      yield { suite, case: caseName, ...own, unit: 'tokens/s', ...ofPeak };
      for (const { name } of others) {
        const other = perSecond(length, timings[name]!);
        yield { suite, case: caseName, ...own, unit: 'tokens/s', ratio: own.value / other.value, ratioOf: name };
        yield {
          suite,
          case: `${caseName}: ${name}`,
          ...other,
          unit: 'tokens/s',
          ratio: other.value / own.value,
          ratioOf: 'winnow',
        };
      }
    }
  } finally {
    await loaded.dispose();
  }
}
