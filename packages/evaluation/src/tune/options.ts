/** The options of a search for policies, and its report. */
import type { Backend } from '@winnow/ops';
import type { PolicyBudget, TunedPolicy } from '@winnow/sparse-attention';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import type { OpenModel, Phase } from '../configuration.js';
import type { TaskScore } from '../tasks/run-tasks.js';
import type { TaskForm, TaskName } from '../tasks/task-types.js';
import type { TuneCheckpoint } from './checkpoint.js';

export type TuneCosts = 'time' | 'pairs' | 'both';

/** Token sequences of one text, each as long as the context. */
export interface TuneText {
  /** For reports. */
  readonly name: string;
  readonly windows: readonly Int32Array[];
}

export interface TuneOptions {
  /** Loads the model; sequences of the texts must fit its context. */
  readonly open: OpenModel;
  /** `weightsHash` of `@winnow/engine`. */
  readonly modelHash: string;
  /**
   * What to keep: a mean KL divergence in each phase, a share of the recall of dense attention, or a speed-up over
   * dense attention of a prompt and its answer together.
   */
  readonly budget: PolicyBudget;
  /** What the search sees. */
  readonly search: TuneText;
  /** What it does not see: the result is checked on it. */
  readonly heldOut: TuneText;
  /** Name of the machine, for the report. */
  readonly machine: string;
  /** Maximum number of positions per window and phase whose distributions are compared. Default 256. */
  readonly numRows?: number | undefined;
  /** Number of last tokens of a window that are decoded; the others are the prompt. Default: a quarter, at most 256. */
  readonly numDecoded?: number | undefined;
  /**
   * What the search saves: measured `time`; `pairs` of queries and keys, which depend on nothing but the other options;
   * or `both`, the mean of both shares. Policies that visit as many keys as their values need, such as `verified-topk`,
   * have no number of pairs and are only tried for `time`. Default `time`.
   */
  readonly costs?: TuneCosts | undefined;
  /** Timed runs of each policy, in turns; the fastest counts. Default 3. */
  readonly numRounds?: number | undefined;
  /** Policies to try in the layers of a phase. Default: `candidatePolicies`. */
  readonly candidates?: Readonly<Partial<Record<Phase, readonly string[]>>> | undefined;
  /** Policies of all layers to compare the result with. Default: `uniformPolicies`. */
  readonly uniform?: Readonly<Partial<Record<Phase, readonly string[]>>> | undefined;
  /** Recall tasks of the report, and of a budget of recall. Default: none. */
  readonly tasks?: readonly TaskName[] | undefined;
  readonly taskForm?: TaskForm | undefined;
  readonly taskLength?: number | undefined;
  readonly numCases?: number | undefined;
  readonly seed: number;
  /** Where pairs are counted. Default: the reference backend, which is slow. */
  readonly backend?: Backend | undefined;
  readonly checkpoint?: TuneCheckpoint | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((what: string, done: number, total: number) => void) | undefined;
  readonly onNotice?: ((text: string) => void) | undefined;
}

const phaseNames = { prefill: true, decode: true } as const;

const tuneNames: OptionNames<TuneOptions> = {
  open: true,
  modelHash: true,
  budget: true,
  search: true,
  heldOut: true,
  machine: true,
  numRows: true,
  numDecoded: true,
  costs: true,
  numRounds: true,
  candidates: phaseNames,
  uniform: phaseNames,
  tasks: true,
  taskForm: true,
  taskLength: true,
  numCases: true,
  seed: true,
  backend: true,
  checkpoint: true,
  signal: true,
  onProgress: true,
  onNotice: true,
};

/** A candidate in one phase. */
export interface CandidateReport {
  readonly phase: Phase;
  readonly policy: string;
  /** Why the engine cannot run it. */
  readonly refusal: string | undefined;
  readonly density: number | undefined;
  /** Milliseconds with this policy in all layers: of a prompt in prefill, of a token in decode. */
  readonly ms: number | undefined;
  /** Mean KL divergence with this policy in one layer, by layer; undefined where it was not measured. */
  readonly divergences: readonly (number | undefined)[];
}

/** Policies of one phase, measured on held-out text with the other phase dense. */
export interface PolicyPoint {
  readonly phase: Phase;
  /** The policy of all layers, in its text form; the whole specification where layers differ. */
  readonly policy: string;
  readonly kld: number;
  readonly kldError: number;
  readonly density: number | undefined;
  readonly ms: number;
}

/** A uniform policy and a tuned one with at most its divergence: the same policy where no other one is better. */
export interface UniformComparison {
  readonly uniform: PolicyPoint;
  /** The cheapest, by `costs`, of those that are faster with fewer pairs; where there is none, of all. */
  readonly tuned: PolicyPoint;
  /** Whether the tuned one takes less time. */
  readonly isFaster: boolean;
  /** Whether it visits fewer pairs; undefined where those of either depend on queries and keys. */
  readonly hasFewerPairs: boolean | undefined;
}

/** The policies of one layer, in their text form, and what each of them alone diverges by. */
export interface LayerChoice {
  readonly layer: number;
  readonly prefill: string;
  readonly decode: string;
  readonly divergence: Readonly<Record<Phase, number>>;
}

export interface TuneReport {
  readonly model: string;
  readonly policy: TunedPolicy;
  /** The text form of the policies of all layers. */
  readonly attention: string;
  readonly costs: TuneCosts;
  readonly layers: readonly LayerChoice[];
  readonly candidates: readonly CandidateReport[];
  /** Points that no other tuned point beats in both divergence and time, from dense on. */
  readonly front: readonly PolicyPoint[];
  readonly comparisons: readonly UniformComparison[];
  /** Time of dense attention divided by that of the tuned policies, for a prompt and its answer. */
  readonly speedup: number;
  readonly tasks: readonly TaskScore[];
  readonly denseTasks: readonly TaskScore[];
}

/** The options with defaults. */
export type TuneSettings = TuneOptions & {
  readonly numRows: number;
  readonly numDecoded: number;
  readonly numTokens: number;
  readonly costs: TuneCosts;
  readonly numRounds: number;
  readonly tasks: readonly TaskName[];
  readonly numCases: number;
};

/** Fewer tokens have no context to be sparse in. */
const minTokens = 32;

/** @throws {ArgumentError} for options that do not exist, and for texts, budgets and counts out of range */
export function settingsOf(options: TuneOptions): TuneSettings {
  checkOptions(options, tuneNames);
  const { budget, search, heldOut, tasks = [], numRows = 256, numRounds = 3, costs = 'time', numCases = 4 } = options;
  const lengths = [...search.windows, ...heldOut.windows].map(({ length }) => length);
  const numTokens = Math.min(...lengths);
  const refuse = (argument: string, expected: string, actual: unknown): never => {
    throw new ArgumentError({ argument, expected, actual: String(actual) });
  };
  if (search.windows.length === 0 || heldOut.windows.length === 0)
    refuse('text', 'windows to search and to check', 'none');
  if (numTokens !== Math.max(...lengths)) refuse('text', 'windows of one length', lengths.join(', '));
  if (numTokens < minTokens) refuse('text', `windows of at least ${minTokens} tokens`, numTokens);
  const numDecoded = options.numDecoded ?? Math.min(256, Math.floor(numTokens / 4));
  for (const [name, count] of Object.entries({ numRows, numRounds, numDecoded, numCases })) {
    if (!Number.isSafeInteger(count) || count < 1) refuse(name, 'a positive integer', count);
  }
  if (numDecoded > numTokens / 2) refuse('numDecoded', `at most half of ${numTokens} tokens`, numDecoded);
  if ('kld' in budget && !(budget.kld > 0)) refuse('budget.kld', 'a positive number', budget.kld);
  if ('speedup' in budget && !(budget.speedup >= 1)) refuse('budget.speedup', 'a number from 1', budget.speedup);
  if ('recall' in budget) {
    if (!(budget.recall > 0 && budget.recall <= 1)) refuse('budget.recall', 'a share above 0', budget.recall);
    if (tasks.length === 0) refuse('tasks', 'recall tasks for a budget of recall', 'none');
  }
  return { ...options, tasks, numRows, numRounds, numDecoded, numTokens, costs, numCases };
}
