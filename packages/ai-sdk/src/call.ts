/** Converts a call of the AI SDK to a request to the engine. */
import type { LanguageModelV4CallOptions, SharedV4Warning } from '@ai-sdk/provider';
import {
  hasReasoning,
  prepareChat,
  type ChatReader,
  type ChatRequest,
  type ChatTool,
  type GenerateOptions,
  type JsonSchema,
  type Model,
  type Prompt,
  type ToolChoice,
} from '@winnow/engine';
import { ArgumentError, checkOptions, definedFields } from '@winnow/tensor';
import { chatMessages } from './messages.js';
import { callSettingNames, type CallSettings, type LanguageModelSettings } from './settings.js';

export interface Call {
  readonly prompt: Prompt;
  readonly options: GenerateOptions;
  readonly reader: ChatReader;
  readonly warnings: SharedV4Warning[];
}

/**
 * @throws {UnsupportedFunctionalityError} for content that is not text
 * @throws {UnknownOptionError} for a name in `providerOptions.winnow` that does not exist
 * @throws {ArgumentError} for options that the engine does not accept
 * @throws {FormatError} for schemas that cannot be enforced
 */
export async function prepareCall(
  model: Model,
  settings: LanguageModelSettings,
  call: LanguageModelV4CallOptions,
): Promise<Call> {
  const warnings: SharedV4Warning[] = [];
  const callSettings: CallSettings = call.providerOptions?.['winnow'] ?? {};
  checkOptions(callSettings, callSettingNames);
  const { responseFormat } = call;
  const jsonSchema =
    responseFormat?.type === 'json' ? ((responseFormat.schema ?? { type: 'object' }) as JsonSchema) : undefined;
  const tools = toolsOf(call, warnings);
  const { minP, repetitionPenalty, penaltyWindow, overflow, grammar, speculative, ...chatSettings } = {
    ...settings,
    ...callSettings,
  };
  const { templateVariables, parallelToolCalls, maxReasoningTokens } = chatSettings;
  if (grammar !== undefined && (jsonSchema !== undefined || tools.length > 0)) {
    throw new ArgumentError({
      argument: 'grammar',
      expected: 'no tools or response format with it',
      actual: 'both',
    });
  }
  const options = definedFields({
    maxTokens: call.maxOutputTokens,
    stop: call.stopSequences,
    temperature: call.temperature,
    topK: call.topK,
    topP: call.topP,
    presencePenalty: call.presencePenalty,
    frequencyPenalty: call.frequencyPenalty,
    seed: call.seed,
    signal: call.abortSignal,
    ...{ minP, repetitionPenalty, penaltyWindow, overflow, grammar, speculative },
  }) as GenerateOptions;

  const messages = chatMessages(call.prompt);
  const isChat = settings.chat ?? model.chatTemplate !== undefined;
  if (!isChat) {
    if (tools.length > 0) warnings.push({ type: 'unsupported', feature: 'tools', details: 'without a chat template' });
    const prompt = messages.map(({ content }) => content).join('\n');
    const reader: ChatReader = { push: (text) => (text === '' ? [] : [{ type: 'text', text }]), end: () => [] };
    return { prompt, options: jsonSchema === undefined ? options : { ...options, jsonSchema }, reader, warnings };
  }
  const request: ChatRequest = {
    messages,
    tools,
    toolChoice: choiceOf(call),
    ...(parallelToolCalls === undefined ? {} : { parallelToolCalls }),
    ...(jsonSchema === undefined ? {} : { jsonSchema }),
    ...(templateVariables === undefined ? {} : { templateVariables }),
    ...(maxReasoningTokens === undefined ? {} : { maxReasoningTokens }),
    ...effortOf(call, model, warnings),
  };
  const { abortSignal } = call;
  const turn = await prepareChat(model, request, abortSignal === undefined ? {} : { signal: abortSignal });
  return { prompt: turn.prompt, options: { ...options, ...turn.options }, reader: turn.createReader(), warnings };
}

/** The SDK passes a reasoning effort to any model; a model whose template has no reasoning causes a warning. */
function effortOf(
  { reasoning }: LanguageModelV4CallOptions,
  model: Model,
  warnings: SharedV4Warning[],
): Pick<ChatRequest, 'reasoningEffort'> {
  if (reasoning === undefined || reasoning === 'provider-default') return {};
  if (reasoning === 'none' || hasReasoning(model)) return { reasoningEffort: reasoning };
  warnings.push({ type: 'unsupported', feature: 'reasoning' });
  return {};
}

function toolsOf({ tools = [] }: LanguageModelV4CallOptions, warnings: SharedV4Warning[]): ChatTool[] {
  return tools.flatMap((tool) => {
    if (tool.type !== 'function') {
      warnings.push({ type: 'unsupported', feature: `provider tool ${tool.name}` });
      return [];
    }
    const { name, description, inputSchema } = tool;
    return [{ name, ...(description === undefined ? {} : { description }), parameters: inputSchema as JsonSchema }];
  });
}

function choiceOf({ toolChoice }: LanguageModelV4CallOptions): ToolChoice {
  return toolChoice?.type === 'tool' ? { name: toolChoice.toolName } : (toolChoice?.type ?? 'auto');
}
