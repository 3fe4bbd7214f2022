/** Measures policies of a model: divergence on windows of text, and time. Every figure is measured once and stored. */
import type { Model } from '@winnow/engine';
import { checkAttention, formatAttention, type AttentionSpec } from '@winnow/sparse-attention';
import { ArgumentError, CapacityError, createRng, UnsupportedOpError } from '@winnow/tensor';
import { baseConfiguration, openOptionsOf, type OpenOptions, type Phase } from '../configuration.js';
import { compareRows } from '../logits/divergence.js';
import { estimate, meanOf, type Estimate } from '../logits/statistics.js';
import { runTasks, type TaskScore } from '../tasks/run-tasks.js';
import type { Measurements } from './checkpoint.js';
import type { TuneSettings } from './options.js';

/** Which text is measured. */
export type Side = 'search' | 'heldOut';

/** Mean KL divergence of the rows of each measured phase. */
export type Divergences = Readonly<Partial<Record<Phase, Estimate>>>;

/** Milliseconds: of the prompt, and of one decoded token. */
export type PhaseTimes = Readonly<Record<Phase, number>>;

/** A window of text with the positions whose rows are compared, and the rows of dense attention. */
interface Window {
  readonly tokens: Int32Array;
  readonly positions: Readonly<Record<Phase, readonly number[]>>;
  readonly base: ReadonlyMap<number, Float32Array>;
}

/** Maximum bytes of rows of dense attention, over all windows. */
const maxRowBytes = 512 * 1024 * 1024;

/** Tokens that are decoded for the time of one. */
const numTimedTokens = 32;

/** Room for the questions and answers of recall tasks. */
const taskMargin = 256;

/** Why the engine does not run a policy. */
export function isRefusal(error: unknown): error is Error {
  return ArgumentError.isInstance(error) || UnsupportedOpError.isInstance(error) || CapacityError.isInstance(error);
}

export class TuneBench {
  readonly settings: TuneSettings;
  readonly #measured: Measurements;
  readonly #windows: Partial<Record<Side, readonly Window[]>> = {};

  constructor(settings: TuneSettings, measured: Measurements) {
    this.settings = settings;
    this.#measured = measured;
  }

  /** Tokens of a window that are a prompt. */
  get numPrompt(): number {
    return this.settings.numTokens - this.settings.numDecoded;
  }

  /**
   * Divergence from dense attention on the windows of a text: of the prompt's rows, of the decoded rows after a prompt,
   * or of both in one run.
   * @throws what `open` throws, also for policies that the engine refuses
   */
  divergence(spec: AttentionSpec, side: Side, phases: readonly Phase[]): Promise<Divergences> {
    const name = `divergence|${side}|${phases.join('+')}|${formatAttention(spec)}`;
    return this.#measured.of(name, async () => {
      const windows = await this.#windowsOf(side);
      const values: Record<Phase, number[]> = { prefill: [], decode: [] };
      await this.#withModel({ spec }, async (model) => {
        for (const window of windows) await this.#compare(model, window, phases, values);
      });
      return Object.fromEntries(phases.map((phase) => [phase, estimate(values[phase])])) as Divergences;
    });
  }

  /**
   * Times of several policies, measured in turns: the fastest of each policy's rounds. A policy that the engine refuses
   * has the reason instead.
   */
  async times(stage: string, specs: readonly AttentionSpec[]): Promise<(PhaseTimes | string)[]> {
    const { numRounds, onProgress, signal } = this.settings;
    const best: (PhaseTimes | string | undefined)[] = specs.map(() => undefined);
    for (let round = 0; round < numRounds; round++) {
      for (const [index, spec] of specs.entries()) {
        if (typeof best[index] === 'string') continue;
        signal?.throwIfAborted();
        onProgress?.(`time: ${formatAttention(spec)}`, round * specs.length + index, numRounds * specs.length);
        const name = `time|${stage}|${round}|${formatAttention(spec)}`;
        const { refusal, prefill = 0, decode = 0 } = await this.#measured.of(name, () => this.#timeOrRefusal(spec));
        const before = best[index];
        best[index] =
          refusal ??
          (typeof before === 'object'
            ? { prefill: Math.min(before.prefill, prefill), decode: Math.min(before.decode, decode) }
            : { prefill, decode });
      }
    }
    return best as (PhaseTimes | string)[];
  }

  /** Scores of the recall tasks. Held-out tasks have other seeds. */
  async tasks(spec: AttentionSpec, side: Side): Promise<readonly TaskScore[]> {
    const { tasks, taskForm = 'general', taskLength = Math.floor(this.settings.numTokens / 2) } = this.settings;
    const { numCases, seed, signal } = this.settings;
    if (tasks.length === 0) return [];
    const name = `tasks|${side}|${formatAttention(spec)}`;
    const scores = await this.#measured.of(name, async () => {
      const context = taskLength + taskMargin;
      const run = (model: Model): Promise<TaskScore[]> =>
        runTasks(model, {
          ...{ tasks, form: taskForm, lengths: [taskLength], numCases, signal },
          seed: 2 * seed + (side === 'search' ? 0 : 1),
          decodesQuestions: true,
        });
      const flat = (await this.#withModel({ spec, context }, run)).flatMap(({ scores: each }) => each);
      return { scores: flat };
    });
    const numQuestions = scores.scores.length / tasks.length;
    return tasks.map((task, index) => {
      const own = scores.scores.slice(index * numQuestions, (index + 1) * numQuestions);
      return { task, length: taskLength, numCases, scores: own, mean: meanOf(own) };
    });
  }

  async #timeOrRefusal(spec: AttentionSpec): Promise<{ refusal?: string; prefill?: number; decode?: number }> {
    try {
      return { ...(await this.#withModel({ spec }, (model) => this.#time(model))) };
    } catch (error) {
      if (!isRefusal(error)) throw error;
      return { refusal: error.message };
    }
  }

  async #time(model: Model): Promise<PhaseTimes> {
    const { search, signal, numDecoded } = this.settings;
    const numTimed = Math.min(numTimedTokens, numDecoded);
    const run = async (numTokens: number, maxTokens: number): Promise<PhaseTimes> => {
      const tokens = (search.windows[0] as Int32Array).subarray(0, numTokens);
      const options = { maxTokens, temperature: 0, ignoreEos: true, ...(signal === undefined ? {} : { signal }) };
      const { timings } = await model.generate(tokens, options).result();
      return { prefill: timings.promptMs, decode: timings.generateMs / Math.max(1, maxTokens - 1) };
    };
    await run(Math.min(64, this.numPrompt), 4); // buffers are touched for the first time
    return run(this.numPrompt, numTimed + 1);
  }

  async #compare(
    model: Model,
    { tokens, positions, base }: Window,
    phases: readonly Phase[],
    values: Record<Phase, number[]>,
  ): Promise<void> {
    const { signal } = this.settings;
    const numPrompt = this.numPrompt;
    const isDecoded = phases.includes('decode');
    await model.logprobs(isDecoded ? tokens : tokens.subarray(0, numPrompt), {
      positions: phases.flatMap((phase) => positions[phase]),
      ...(isDecoded ? { phase: 'decode', decodeFrom: numPrompt } : {}),
      ...(signal === undefined ? {} : { signal }),
      onRow(position, row) {
        const phase = position < numPrompt ? 'prefill' : 'decode';
        const { divergence } = compareRows(base.get(position) as Float32Array, row, tokens[position + 1] as number);
        values[phase].push(divergence);
      },
    });
  }

  /** The windows of a text; computes the rows of dense attention when they are first needed. */
  async #windowsOf(side: Side): Promise<readonly Window[]> {
    const known = this.#windows[side];
    if (known !== undefined) return known;
    const { signal } = this.settings;
    const texts = this.settings[side].windows;
    const rng = createRng(this.settings.seed);
    const windows = await this.#withModel({ spec: baseConfiguration.attention }, async (model) => {
      const numRows = this.#numRows(model.config.vocabSize);
      const all: Window[] = [];
      for (const tokens of texts) {
        const positions = {
          prefill: sample(this.numPrompt - 1, numRows, (bound) => rng.nextInt(bound)),
          decode: sample(tokens.length - 1 - this.numPrompt, numRows, (bound) => rng.nextInt(bound)).map(
            (position) => this.numPrompt + position,
          ),
        };
        const base = new Map<number, Float32Array>();
        await model.logprobs(tokens, {
          positions: [...positions.prefill, ...positions.decode],
          ...(signal === undefined ? {} : { signal }),
          onRow: (position, row) => void base.set(position, row),
        });
        all.push({ tokens, positions, base });
      }
      return all;
    });
    this.#windows[side] = windows;
    return windows;
  }

  #numRows(vocabSize: number): number {
    const { search, heldOut, numRows } = this.settings;
    const numWindows = search.windows.length + heldOut.windows.length;
    return Math.max(16, Math.min(numRows, Math.floor(maxRowBytes / (8 * vocabSize * numWindows))));
  }

  async #withModel<T>(
    { spec, context = this.settings.numTokens + 1 }: { readonly spec: AttentionSpec; readonly context?: number },
    use: (model: Model) => Promise<T>,
  ): Promise<T> {
    const { open, signal } = this.settings;
    signal?.throwIfAborted();
    const options: OpenOptions = { ...openOptionsOf(baseConfiguration, context), attention: checkAttention(spec) };
    const model = await open(options);
    try {
      return await use(model);
    } finally {
      await model.dispose();
    }
  }
}

/** `count` of the numbers below `total` without repetition, ascending; all of them if there are fewer. */
function sample(total: number, count: number, nextInt: (bound: number) => number): number[] {
  const all = Array.from({ length: Math.max(0, total) }, (_, i) => i);
  for (let i = 0; i < Math.min(count, all.length); i++) {
    const other = i + nextInt(all.length - i);
    [all[i], all[other]] = [all[other] as number, all[i] as number];
  }
  return all.slice(0, count).toSorted((a, b) => a - b);
}
