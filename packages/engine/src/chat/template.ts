/** Renders conversations as prompts with the model's own Jinja template. */
import type { JsonSchema } from '@winnow/grammar';
import { ArgumentError, FormatError, checkOptions, finish, type OptionNames, type Sliced } from '@winnow/tensor';
import type { ImageInput } from '../images/image-encoder.js';
import { StepBudgetError } from './jinja/budget.js';
import { Template } from './jinja/library.js';
import { renderSliced } from './jinja/render.js';
import {
  messageFieldsOf,
  prefersText,
  probeMessages,
  templateMessage,
  type MessageFields,
} from './template-messages.js';

/** A function that the model may call. */
export interface ChatTool {
  readonly name: string;
  readonly description?: string;
  /** Schema of the arguments, an object. Default: an object without members. */
  readonly parameters?: JsonSchema;
}

/** A call that the model made. */
export interface ChatToolCall {
  /** Matches the call with its result. */
  readonly id?: string;
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** One turn of a conversation. */
export interface ChatMessage {
  /** `system`, `user`, `assistant`, `tool` for results, and other roles of the model's template. */
  readonly role: string;
  readonly content: string;
  /** Images before the text, for models that take them: files, or pixels. */
  readonly images?: readonly ImageInput[];
  /**
   * On messages of the assistant: its reasoning. The template decides which of it the model sees again; one that has no
   * place for it leaves it out.
   */
  readonly reasoning?: string;
  /** On messages of the assistant. */
  readonly toolCalls?: readonly ChatToolCall[];
  /** On results. */
  readonly toolCallId?: string;
  /** On results: the name of the tool. */
  readonly name?: string;
}

export interface RenderOptions {
  /** End with the opening of the assistant's turn. Default true. */
  readonly addGenerationPrompt?: boolean;
  /** Additional variables of the template, such as `tools` or `enable_thinking`. Default: none. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

const renderOptionNames: OptionNames<RenderOptions> = { addGenerationPrompt: true, variables: true };

export interface ChatTemplate {
  /** The Jinja source. */
  readonly source: string;
  /**
   * The prompt as text, including special tokens. Message contents that contain the text of a special token produce
   * that token.
   * @throws {FormatError} when the template is not valid Jinja, is too long, or takes too many steps
   * @throws {ArgumentError} when a message has no content, or the template rejects the conversation or cannot be rendered
   */
  render(messages: readonly ChatMessage[], options?: RenderOptions): string;
  /** The same in slices. */
  renderSliced(messages: readonly ChatMessage[], options?: RenderOptions): Sliced<string>;
}

/** The template of a model. @param specialTokens texts of `bos_token`, `eos_token` and the like, as templates name them */
export function createChatTemplate(
  origin: string,
  source: string,
  specialTokens: Readonly<Record<string, string>>,
): ChatTemplate {
  return new JinjaTemplate(origin, source, specialTokens);
}

/** What templates find where there are no tools and no documents, as with `transformers`. */
const withoutTools = { tools: null, documents: null };

/** Templates of published models have up to 20,000 characters. This many are parsed in 45 ms at worst. */
const maxSourceLength = 40_000;
/**
 * The library needs time in proportion to the square of each run of white space; in published templates these squares
 * add up to at most 200,000.
 */
const maxSpaceSquares = 1 << 22;

/**
 * The source is parsed when a conversation is first rendered, so that a model with a broken template can still generate
 * from text.
 */
class JinjaTemplate implements ChatTemplate {
  readonly source: string;
  readonly #origin: string;
  readonly #specialTokens: Readonly<Record<string, string>>;
  #parsed: Template | undefined;
  /** It prints the arguments of calls as they are; undefined before the first call. */
  #wantsText: boolean | undefined;
  /** With arguments as objects, and as text. */
  readonly #fields: MessageFields[] = [];

  constructor(origin: string, source: string, specialTokens: Readonly<Record<string, string>>) {
    this.#origin = origin;
    this.source = source;
    this.#specialTokens = specialTokens;
  }

  render(messages: readonly ChatMessage[], options: RenderOptions = {}): string {
    return finish(this.renderSliced(messages, options));
  }

  *renderSliced(messages: readonly ChatMessage[], options: RenderOptions = {}): Sliced<string> {
    checkOptions(options, renderOptionNames);
    const empty = messages.findIndex(({ content }) => content === undefined);
    if (empty !== -1) {
      throw new ArgumentError({ argument: `messages[${empty}].content`, expected: 'a text', actual: 'undefined' });
    }
    if (this.#parsed === undefined) {
      this.#parsed = this.#parse();
      yield;
    }
    try {
      const hasCalls = messages.some(({ toolCalls = [] }) => toolCalls.length > 0);
      if (hasCalls) this.#wantsText ??= prefersText(yield* this.#probe(false), yield* this.#probe(true));
      const fields = (this.#fields[Number(this.#wantsText === true)] ??= this.#fieldsOf(this.#wantsText === true));
      return yield* this.#renderWith(this.#parsed, messages, fields, options);
    } catch (cause) {
      if (cause instanceof StepBudgetError) throw this.#formatError(cause);
      const expected = "a conversation that the model's chat template accepts";
      throw new ArgumentError({ argument: 'messages', expected, actual: messageOf(cause) });
    }
  }

  #fieldsOf(wantsTextArguments: boolean): MessageFields {
    return messageFieldsOf(this.source, wantsTextArguments);
  }

  *#renderWith(
    parsed: Template,
    messages: readonly ChatMessage[],
    fields: MessageFields,
    { variables, addGenerationPrompt = true }: RenderOptions,
  ): Sliced<string> {
    return yield* renderSliced(parsed, {
      ...withoutTools,
      ...this.#specialTokens,
      ...variables,
      messages: messages.map((message) => templateMessage(message, fields)),
      add_generation_prompt: addGenerationPrompt,
    });
  }

  /** The probe with arguments as text or as an object; undefined if the template refuses it. */
  *#probe(wantsTextArguments: boolean): Sliced<string | undefined> {
    try {
      return yield* this.#renderWith(this.#parsed as Template, probeMessages, this.#fieldsOf(wantsTextArguments), {});
    } catch {
      return undefined;
    }
  }

  #parse(): Template {
    if (this.source.length > maxSourceLength) {
      throw this.#formatError(`expected at most ${maxSourceLength} characters, got ${this.source.length}`);
    }
    const spaces = this.source.match(/\s+/g) ?? [];
    if (spaces.reduce((sum, { length }) => sum + length ** 2, 0) > maxSpaceSquares) {
      throw this.#formatError('expected shorter runs of white space');
    }
    try {
      return new Template(this.source.replaceAll(/\r\n?/g, '\n')); // as Jinja does
    } catch (cause) {
      throw this.#formatError(cause);
    }
  }

  #formatError(cause: unknown): FormatError {
    return new FormatError({ source: this.#origin, field: 'chat_template', message: messageOf(cause) }, { cause });
  }
}

/** A tool with OpenAI's field names. */
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
