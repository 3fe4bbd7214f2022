import type { Figure } from '../harness/figure.js';
import type { Suite, SuiteContext } from '../harness/suite.js';
import { greedy, loadContenders, modelCases, type LoadedContenders } from './end-to-end.js';

const suite = 'agreement';

/**
 * Not a speed measurement: checks that both programs compute the same results, without which their times are not
 * comparable.
 */
export const agreement: Suite = {
  name: suite,
  summary: 'do Winnow and the peer compute the same? greedy tokens and log-probabilities; needs --peer',
  async *run(context) {
    if (context.options.peer === undefined)
      throw new Error('agreement compares with a peer: add --peer node-llama-cpp');
    for (const modelCase of modelCases(context)) yield* compareModel(context, modelCase);
  },
};

async function* compareModel(
  context: SuiteContext,
  modelCase: Parameters<typeof loadContenders>[1],
): AsyncIterable<Figure> {
  const lengths = context.options.tokens ?? [1, 8, 32];
  const count = context.options.quick ? 4 : 16;
  const loaded = await loadContenders(context, modelCase, [Math.max(...lengths) + count]);
  try {
    for (const length of lengths) yield* comparePrompt(loaded, loaded.tokens(length), count);
  } finally {
    await loaded.dispose();
  }
}

async function* comparePrompt(
  { name, model, session, peer }: LoadedContenders,
  prompt: readonly number[],
  count: number,
): AsyncIterable<Figure> {
  if (peer === undefined) return;
  const caseName = `${name} @${prompt.length}`;
  session.reset(); // releases its part of the cache
  const own = (await model.logprobs(prompt))[0]!;
  const other = await peer.logprobs(prompt);
  let squares = 0;
  let variance = 0;
  let max = 0;
  const mean = own.reduce((sum, value) => sum + value, 0) / own.length;
  own.forEach((value, id) => {
    const difference = Math.abs(value - other[id]!);
    squares += difference ** 2;
    variance += (value - mean) ** 2;
    max = Math.max(max, difference);
  });
  const deviation = Math.sqrt(variance / own.length);
  const root = Math.sqrt(squares / own.length);
  const unit = 'nat';
  const ratioOf = `standard deviation of winnow's log-probabilities`;
  yield { suite, case: `${caseName}: rms difference`, value: root, best: root, unit, ratio: root / deviation, ratioOf };
  yield { suite, case: `${caseName}: max difference`, value: max, best: max, unit, ratio: max / deviation, ratioOf };

  const ownTokens = (await greedy(session, prompt, count)).tokens;
  await peer.setContext(0, prompt.slice(0, -1));
  const otherTokens = (await peer.decode(0, prompt.at(-1)!, count)).tokens;
  let same = 0;
  while (same < count && ownTokens[same] === otherTokens[same]) same++;
  const tokens = { value: same, best: same, unit: 'tokens', ratio: same / count, ratioOf: `${count} greedy tokens` };
  yield { suite, case: `${caseName}: equal prefix length`, ...tokens };
}
