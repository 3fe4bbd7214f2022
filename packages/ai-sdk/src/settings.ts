/** Settings of language models, for all calls; `providerOptions.winnow` has the same names for one call. */
import type { GenerateOptions } from '@winnow/engine';
import type { OptionNames } from '@winnow/tensor';

export interface LanguageModelSettings extends Pick<
  GenerateOptions,
  'minP' | 'repetitionPenalty' | 'penaltyWindow' | 'overflow' | 'grammar' | 'speculative'
> {
  /**
   * Whether to apply the model's chat template. Without one, the model continues the concatenated texts of all
   * messages. Default: true if the model has one.
   */
  readonly chat?: boolean;
  /** Additional variables of the chat template, such as `enable_thinking`. Default: none. */
  readonly templateVariables?: Readonly<Record<string, unknown>>;
  /** Whether one answer may contain several tool calls. Default true. */
  readonly parallelToolCalls?: boolean;
  /** Maximum number of tokens of reasoning, after which its end is forced. Default: unlimited. */
  readonly maxReasoningTokens?: number;
  /** Name of the model in the SDK. Default: the name in its file. */
  readonly modelId?: string;
}

/** Names in `providerOptions.winnow`. */
export type CallSettings = Omit<LanguageModelSettings, 'chat' | 'modelId'>;

export const callSettingNames: OptionNames<CallSettings> = {
  minP: true,
  repetitionPenalty: true,
  penaltyWindow: true,
  overflow: true,
  grammar: true,
  speculative: true,
  templateVariables: true,
  parallelToolCalls: true,
  maxReasoningTokens: true,
};

export const languageModelNames: OptionNames<LanguageModelSettings> = {
  ...callSettingNames,
  chat: true,
  modelId: true,
};
