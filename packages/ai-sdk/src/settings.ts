/** Settings of language models, for all calls; `providerOptions.winnow` has the same names for one call. */
import type { GenerateOptions } from '@winnow/engine';

export interface LanguageModelSettings extends Pick<
  GenerateOptions,
  'minP' | 'repetitionPenalty' | 'penaltyWindow' | 'overflow' | 'grammar'
> {
  /**
   * Whether prompts go through the model's chat template. Without one the texts of all messages are the beginning that the
   * model continues. Default: when it has one.
   */
  readonly chat?: boolean;
  /** Further variables of the chat template, such as `enable_thinking`. */
  readonly templateVariables?: Readonly<Record<string, unknown>>;
  /** Whether one answer may call several tools. Default true. */
  readonly parallelToolCalls?: boolean;
  /** How the SDK names the model. Default: the name that its file gives. */
  readonly modelId?: string;
}
