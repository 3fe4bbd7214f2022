/** Generations whose tokens and times are compared. */
import type { GenerateOptions, Model, Session, Speculative } from '@winnow/engine';

/** One generation: its tokens, the time after each, and the share of drafted tokens that were accepted. */
export interface Run {
  readonly tokens: readonly number[];
  readonly timesMs: readonly number[];
  readonly acceptance: number;
}

export async function generate(
  model: Pick<Model | Session, 'generate'>,
  prompt: string | readonly number[],
  speculative: Speculative,
  count: number,
  options: GenerateOptions = {},
): Promise<Run> {
  const tokens: number[] = [];
  const timesMs: number[] = [];
  let startMs = 0;
  const limits = { ignoreEos: true, maxTokens: count + 1, speculative };
  const generation = model.generate(prompt, { temperature: 0, ...options, ...limits });
  for await (const { tokenId } of generation) {
    if (startMs === 0) startMs = performance.now();
    else timesMs.push(performance.now() - startMs);
    tokens.push(tokenId);
  }
  const { numDraftedTokens = 0, numAcceptedTokens = 0 } = (await generation.result()).speculation ?? {};
  return { tokens, timesMs, acceptance: numAcceptedTokens / Math.max(1, numDraftedTokens) };
}

/** @throws {Error} when a speculative generation differs from the plain one */
export function checkEqual(kind: string, plain: readonly Run[], drafted: readonly Run[]): number {
  const expected = String(plain[0]!.tokens);
  if ([...plain, ...drafted].some(({ tokens }) => String(tokens) !== expected)) {
    throw new Error(`${kind} generated other tokens than plain decoding`);
  }
  return drafted.reduce((sum, { tokens }) => sum + tokens.length, 0);
}

/** Times of steps by the number of tokens they yielded, which arrive together. @param pauseMs minimum time of a step */
export function stepTimes(runs: readonly Run[], pauseMs: number): ReadonlyMap<number, number[]> {
  const times = new Map<number, number[]>();
  for (const { timesMs } of runs) {
    let [lastMs, numTokens] = [0, 0];
    for (const [index, ms] of timesMs.entries()) {
      numTokens++;
      const nextMs = timesMs[index + 1];
      if (nextMs === undefined || nextMs - ms < pauseMs) continue;
      if (lastMs > 0) times.set(numTokens, [...(times.get(numTokens) ?? []), ms - lastMs]);
      [lastMs, numTokens] = [ms, 0];
    }
  }
  return new Map([...times].toSorted(([a], [b]) => a - b));
}
