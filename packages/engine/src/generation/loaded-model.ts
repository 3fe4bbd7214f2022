/** A model in memory, ready for sessions, as the parts of the engine share it. */
import type { DecoderConfig } from '@winnow/models';
import type { AttentionRequirements } from '@winnow/sparse-attention';
import type { Tokenizer } from '@winnow/tokenizers';
import type { TracedLayer } from '../plan/attention-trace.js';
import type { Constraints } from './constraint.js';
import type { SamplingOptions } from './sampling-options.js';
import type { Speculative } from '../plan/speculative.js';
import type { DraftModel } from './draft-model.js';
import type { SpeculationCounts } from '../metrics/speculation.js';
import type { StepCosts } from './step-costs.js';
import type { ImagePrompts } from '../images/image-prompts.js';
import type { NonFiniteSearch } from '../memory/non-finite-search.js';
import type { PromptCache } from '../runtime/prompt-cache/prompt-cache.js';
import type { Scheduler } from '../runtime/scheduler.js';
import type { KvPool } from '../runtime/kv-pool.js';

/** Clock and randomness, passed in so that tests can control them. */
export interface Host {
  /** Milliseconds of any origin. */
  readonly now: () => number;
  /** A seed for generations that do not name one. */
  readonly randomSeed: () => number;
}

export interface LoadedModel {
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer;
  readonly eosIds: ReadonlySet<number>;
  /** Grammars and schemas over the vocabulary. */
  readonly constraints: Constraints;
  /** Sampling that the model recommends; the caller's options take precedence. */
  readonly defaultSampling: SamplingOptions;
  /** The default of `speculative` in generations. */
  readonly speculative: Speculative;
  /** Why its steps cannot verify drafts, if they cannot. */
  readonly draftObstacle: string | undefined;
  /** The model of `speculative: 'draft'`. */
  readonly draftModel: DraftModel | undefined;
  /** Counts the drafts of all generations. */
  readonly speculation: SpeculationCounts;
  /** What steps of several tokens cost, as all generations measure it. */
  readonly stepCosts: StepCosts;
  readonly contextSize: number;
  /** What the attention policy requires of sequences. */
  readonly attention: AttentionRequirements;
  /** Called with the planned length of a sequence; reports once when it exceeds the trained context. */
  readonly noteLength: (numTokens: number) => void;
  readonly pool: KvPool;
  readonly scheduler: Scheduler;
  /** Pages of prompts in files. */
  readonly promptCache: PromptCache | undefined;
  /** For models that take images. */
  readonly images: ImagePrompts | undefined;
  readonly nonFinite: NonFiniteSearch;
  readonly host: Host;
  /** Layers whose attention is traced, if any is. */
  readonly tracedLayers: readonly TracedLayer[] | undefined;
  /** Entries of the `topValues` and `topIndices` outputs. */
  readonly numTop: number;
}
