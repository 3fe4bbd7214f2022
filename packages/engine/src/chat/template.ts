/** Conversations to prompts, by the model's own Jinja template. */
import { Template } from '@huggingface/jinja';
import type { JsonSchema } from '@winnow/grammar';
import { ArgumentError, FormatError, checkOptions, type OptionNames } from '@winnow/tensor';

/** A function that the model may ask for. */
export interface ChatTool {
  readonly name: string;
  readonly description?: string;
  /** What its arguments are: an object. Default: one without members. */
  readonly parameters?: JsonSchema;
}

/** What the model asked for. */
export interface ChatToolCall {
  /** Which result belongs to it. */
  readonly id?: string;
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** One turn of a conversation. */
export interface ChatMessage {
  /** `system`, `user`, `assistant`, `tool` for results, and what else the model's template knows. */
  readonly role: string;
  readonly content: string;
  /** Of the assistant. */
  readonly toolCalls?: readonly ChatToolCall[];
  /** Of a result. */
  readonly toolCallId?: string;
  /** The tool of a result. */
  readonly name?: string;
}

export interface RenderOptions {
  /** End with the opening of the assistant's turn. Default true. */
  readonly addGenerationPrompt?: boolean;
  /** Further variables of the template, such as `tools` or `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

const renderOptionNames: OptionNames<RenderOptions> = { addGenerationPrompt: true, variables: true };

export interface ChatTemplate {
  /** The Jinja source. */
  readonly source: string;
  /**
   * The prompt as text, special tokens by their spelling: contents of messages that spell one become it.
   * @throws {FormatError} when the template is not valid Jinja
   * @throws {ArgumentError} when the template refuses the conversation or cannot be rendered
   */
  render(messages: readonly ChatMessage[], options?: RenderOptions): string;
}

/**
 * The source is parsed when a conversation is first rendered, so that a model whose template cannot be used still
 * generates from text.
 * @param specialTokens texts of `bos_token`, `eos_token` and the like, as templates name them
 */
export function createChatTemplate(
  origin: string,
  source: string,
  specialTokens: Readonly<Record<string, string>>,
): ChatTemplate {
  let parsed: Template | undefined;
  const parse = (): Template => {
    try {
      return new Template(source);
    } catch (cause) {
      throw new FormatError({ source: origin, field: 'chat_template', message: messageOf(cause) }, { cause });
    }
  };
  return {
    source,
    render(messages, options = {}): string {
      checkOptions(options, renderOptionNames);
      parsed ??= parse();
      try {
        return parsed.render({
          ...specialTokens,
          ...options.variables,
          messages: messages.map(templateMessage),
          add_generation_prompt: options.addGenerationPrompt ?? true,
        });
      } catch (cause) {
        throw new ArgumentError({
          argument: 'messages',
          expected: "a conversation that the model's chat template accepts",
          actual: messageOf(cause),
        });
      }
    },
  };
}

/** Templates know messages by the names of OpenAI's interface, with arguments as objects. */
function templateMessage({ toolCalls, toolCallId, ...message }: ChatMessage): Record<string, unknown> {
  return {
    ...message,
    ...(toolCallId === undefined ? {} : { tool_call_id: toolCallId }),
    ...(toolCalls === undefined || toolCalls.length === 0
      ? {}
      : {
          tool_calls: toolCalls.map(({ id, name, arguments: values }) => ({
            ...(id === undefined ? {} : { id }),
            type: 'function',
            function: { name, arguments: values },
          })),
        }),
  };
}

/** A tool by the names of OpenAI's interface. */
export function templateTool({ name, description, parameters }: ChatTool): Record<string, unknown> {
  const declared = parameters ?? { type: 'object', properties: {} };
  return {
    type: 'function',
    function: { name, ...(description === undefined ? {} : { description }), parameters: declared },
  };
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
