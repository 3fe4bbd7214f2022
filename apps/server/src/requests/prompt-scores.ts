/** An echoed prompt: its text, and the log-probabilities of its own tokens. */
import { selectTopK } from '@winnow/ops';
import type { TokenLogprob } from '@winnow/engine';
import { ApiError } from '../http/api-error.js';
import type { GenerativeModel } from '../options.js';
import type { GenerationJob } from './generation-job.js';
import type { ScoredToken } from './logprobs.js';

export interface EchoedPrompt {
  readonly text: string;
  /** Empty if no logprobs are wanted. */
  readonly tokens: readonly ScoredToken[];
}

/**
 * The logprob of token i comes from the row after token i - 1; nothing precedes the first token, so it has none.
 * @param given the text of the request; undefined for token ids, which are decoded
 * @param numTop undefined: no logprobs
 * @throws {ApiError} 400 when the model cannot score
 */
export async function echoOf(
  job: GenerationJob,
  prompt: Int32Array,
  given: string | undefined,
  model: GenerativeModel,
  numTop: number | undefined,
): Promise<EchoedPrompt> {
  const pieces = piecesOf(prompt, model.tokenizer);
  const text = given ?? pieces.join('');
  if (numTop === undefined) return { text, tokens: [] };
  const scores = await scoresOf(job, prompt, numTop);
  return { text, tokens: scores.map((score, index) => ({ ...score, numChars: (pieces[index] as string).length })) };
}

/** @throws {ApiError} 400 for a model that cannot score prompts */
export function checkScores(model: GenerativeModel, id: string): void {
  if (model.logprobs !== undefined) return;
  const message = `The model '${id}' cannot score prompts: echo and logprobs need a model with log-probabilities`;
  throw new ApiError({ status: 400, message, param: 'echo', code: 'unsupported_value' });
}

type Tokenizer = GenerativeModel['tokenizer'];

/** What each token adds to the text. */
function piecesOf(prompt: Int32Array, tokenizer: Tokenizer): string[] {
  const detokenizer = tokenizer.createDetokenizer({ skipSpecialTokens: true });
  const pieces = Array.from(prompt, (id) => (id < tokenizer.vocabSize ? detokenizer.push(id) : ''));
  pieces[pieces.length - 1] += detokenizer.flush();
  return pieces;
}

async function scoresOf(job: GenerationJob, prompt: Int32Array, numTop: number): Promise<ScoredToken[]> {
  const [first, ...rest] = prompt;
  const scores: ScoredToken[] = [{ tokenId: first as number, logprob: null, topLogprobs: null }];
  await job.score(prompt, (position, logprobs) => {
    const tokenId = rest[position] as number;
    scores.push({ tokenId, logprob: logprobs[tokenId] as number, topLogprobs: topOf(logprobs, numTop) });
  });
  return scores;
}

function topOf(logprobs: Float32Array, numTop: number): TokenLogprob[] {
  const k = Math.min(numTop, logprobs.length);
  const [ids, values] = [new Int32Array(k), new Float32Array(k)];
  if (k > 0) selectTopK(logprobs, 0, logprobs.length, k, ids, values);
  return Array.from(ids, (tokenId, rank) => ({ tokenId, logprob: values[rank] as number }));
}
