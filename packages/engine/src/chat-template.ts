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
  /** @throws {ArgumentError} when the template refuses the conversation or cannot be rendered */
  render(messages: readonly ChatMessage[], options?: RenderOptions): string;
}

/**
 * @param specialTokens texts of `bos_token`, `eos_token` and the like, as templates name them
 * @throws {FormatError} when the template is not valid Jinja
 */
export function createChatTemplate(
  origin: string,
  source: string,
  specialTokens: Readonly<Record<string, string>>,
): ChatTemplate {
  let template: Template;
  try {
    template = new Template(source);
  } catch (cause) {
    throw new FormatError({ source: origin, field: 'chat_template', message: messageOf(cause) }, { cause });
  }
  return {
    source,
    render(messages, options = {}): string {
      try {
        return template.render({
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
