/**
 * Asks a model recall questions one after another on one cache, computing every token of a question under the tested
 * policy.
 */
import type { Model, Session } from '@winnow/engine';
import { meanOf } from '../logits/statistics.js';
import { createRecallCase, isRankQuestion } from './recall-case.js';
import type { RankQuestion, RecallQuestion, TaskForm, TaskName } from './task-types.js';

export interface TaskOptions {
  readonly tasks: readonly TaskName[];
  readonly form: TaskForm;
  /** Number of tokens of the texts. */
  readonly lengths: readonly number[];
  /** Number of cases per task and length. */
  readonly numCases: number;
  readonly seed: number;
  /** Compute questions in the decode phase, so that a decode policy applies to them and not only to their answers. */
  readonly decodesQuestions: boolean;
  readonly signal?: AbortSignal | undefined;
}

/** Scores of one task at one length, 0 to 1, by question. */
export interface TaskScore {
  readonly task: TaskName;
  readonly length: number;
  readonly numCases: number;
  /**
   * Accuracy of the first, second and third question: exact match of the answer, or, for ranked words, the share of
   * correctly ordered pairs of a right and a wrong word.
   */
  readonly scores: readonly number[];
  readonly mean: number;
}

/** Deterministic: the same options give the same tasks. Answers are greedy. */
export async function runTasks(model: Model, options: TaskOptions): Promise<TaskScore[]> {
  const { tasks, form, lengths, numCases, seed, decodesQuestions, signal } = options;
  const encode = (text: string): Int32Array => model.tokenizer.encode(text, { addSpecialTokens: false });
  const countTokens = (text: string): number => encode(text).length;
  const results: TaskScore[] = [];
  for (const length of lengths) {
    for (const task of tasks) {
      const byQuestion: number[][] = [];
      for (let index = 0; index < numCases; index++) {
        signal?.throwIfAborted();
        const recallCase = createRecallCase({ task, form, length, countTokens, seed: seed * 1000 + index });
        const tokens = [...model.encodePrompt(recallCase.context)];
        const session = model.createSession();
        try {
          const asker = new Asker(session, encode, decodesQuestions, signal);
          await asker.read(tokens);
          for (const [place, question] of recallCase.questions.entries()) {
            (byQuestion[place] ??= []).push(await asker.ask(question));
          }
        } finally {
          session.dispose();
        }
      }
      const scores = byQuestion.map((values) => meanOf(values));
      results.push({ task, length, numCases, scores, mean: meanOf(scores) });
    }
  }
  return results;
}

/** One conversation: the text and the answers so far. */
class Asker {
  readonly #session: Session;
  readonly #encode: (text: string) => Int32Array;
  readonly #decodesQuestions: boolean;
  readonly #signal: AbortSignal | undefined;
  readonly #tokens: number[] = [];

  constructor(
    session: Session,
    encode: (text: string) => Int32Array,
    decodesQuestions: boolean,
    signal: AbortSignal | undefined,
  ) {
    this.#session = session;
    this.#encode = encode;
    this.#decodesQuestions = decodesQuestions;
    this.#signal = signal;
  }

  /** The text, as a prompt. */
  async read(tokens: readonly number[]): Promise<void> {
    this.#tokens.push(...tokens);
    if (this.#decodesQuestions) await this.#generate(1, 'prefill').result();
  }

  /** Scores the model's answer, which stays in the context. */
  async ask(question: RecallQuestion | RankQuestion): Promise<number> {
    this.#tokens.push(...this.#encode(question.prompt));
    return isRankQuestion(question) ? this.#rank(question) : this.#recite(question);
  }

  #generate(
    maxTokens: number,
    promptPhase: 'prefill' | 'decode' = this.#decodesQuestions ? 'decode' : 'prefill',
    numTopLogprobs = 0,
  ): ReturnType<Session['generate']> {
    return this.#session.generate(this.#tokens, {
      maxTokens,
      numTopLogprobs,
      promptPhase,
      temperature: 0,
      repetitionPenalty: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      ignoreEos: true,
      ...(this.#signal === undefined ? {} : { signal: this.#signal }),
    });
  }

  async #recite({ answer }: RecallQuestion): Promise<number> {
    const expected = this.#encode(answer);
    const { tokens } = await this.#generate(expected.length).result();
    this.#tokens.push(...tokens);
    return Number(tokens.length === expected.length && tokens.every((token, i) => token === expected[i]));
  }

  async #rank({ right, wrong }: RankQuestion): Promise<number> {
    const best = new Map<number, number>();
    for await (const { tokenId, topLogprobs } of this.#generate(1, undefined, maxRanked)) {
      for (const top of topLogprobs) best.set(top.tokenId, top.logprob);
      this.#tokens.push(tokenId);
    }
    const score = (word: string): number => best.get(this.#encode(word)[0]) ?? -Infinity;
    return orderedShare(right.map(score), wrong.map(score));
  }
}

/** Words ranked below this many tokens count as equally unlikely. */
const maxRanked = 64;

/** Share of pairs of a right and a wrong word with the right one ranked higher; ties count half. */
export function orderedShare(right: readonly number[], wrong: readonly number[]): number {
  let sum = 0;
  for (const a of right) for (const b of wrong) sum += a > b ? 1 : a === b ? 0.5 : 0;
  return right.length * wrong.length === 0 ? 1 : sum / (right.length * wrong.length);
}
