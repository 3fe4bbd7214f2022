/** Conversations to prompts, by the model's own Jinja template. */
import { Template } from '@huggingface/jinja';
import { ArgumentError, FormatError } from '@winnow/tensor';

/** One turn of a conversation. */
export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

export interface RenderOptions {
  /** End with the opening of the assistant's turn. Default true. */
  readonly addGenerationPrompt?: boolean;
  /** Further variables of the template, such as `tools` or `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

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
      parsed ??= parse();
      try {
        return parsed.render({
          ...specialTokens,
          ...options.variables,
          messages: messages.map((message) => ({ ...message })),
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

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
