/** A conversation with a model: its messages, its cache, and one reply at a time. */
import {
  prepareChat,
  type ChatMessage,
  type ChatRequest,
  type ChatTool,
  type ChatTurn,
  type GenerateOptions,
  type GenerationResult,
  type Model,
  type SamplingOptions,
  type Session,
  type ToolCallPart,
} from '@winnow/engine';
import type { OfferedTools, Toolbox, ToolHost } from '@winnow/mcp';
import { CapacityError, definedFields, WinnowError } from '@winnow/tensor';
import { UsageError } from '../errors/errors.js';
import { countOfImages } from '../images/read-image.js';
import { streamGeneration } from '../terminal/stream-generation.js';

/** The model of a conversation, which another may replace. */
export interface ConversationModel {
  readonly model: Model;
  readonly session: Session;
  /** As it recommends, and as flags say. */
  readonly sampling: SamplingOptions;
  /** Display name. */
  readonly name: string;
}

export interface ConversationOptions {
  readonly limits: GenerateOptions;
  /** How much the model reasons before it replies. */
  readonly reasoning: Pick<ChatRequest, 'reasoningEffort' | 'maxReasoningTokens'>;
  /** Tools that the model may call. */
  readonly toolbox: Toolbox | undefined;
  /** Whether the first answer to a message calls a tool; those after its results may. */
  readonly toolChoice: ChatRequest['toolChoice'];
  /** Seed of the first reply; each further one uses the next seed. */
  readonly seed: number;
  readonly system: string | undefined;
}

export class Conversation {
  system: string | undefined;
  /** Messages of user and assistant; the system message is separate. */
  messages: ChatMessage[] = [];
  /** Images of the next message. */
  attachedImages: readonly Uint8Array[] = [];
  lastResult: GenerationResult | undefined;
  readonly #options: ConversationOptions;
  #current: ConversationModel;
  #nextSeed: number;

  constructor(current: ConversationModel, options: ConversationOptions) {
    this.system = options.system;
    this.#current = current;
    this.#options = options;
    this.#nextSeed = options.seed;
  }

  get model(): Model {
    return this.#current.model;
  }

  get name(): string {
    return this.#current.name;
  }

  /** From now on another model replies, which reads the conversation first. */
  use(current: ConversationModel): void {
    this.#current = current;
    this.lastResult = undefined;
  }

  get toolbox(): Toolbox | undefined {
    return this.#options.toolbox;
  }

  get numCachedTokens(): number {
    return this.#current.session.tokens.length;
  }

  /** All messages as the model sees them. */
  transcript(): ChatMessage[] {
    return this.system === undefined
      ? [...this.messages]
      : [{ role: 'system', content: this.system }, ...this.messages];
  }

  replaceAll(messages: readonly ChatMessage[]): void {
    const [first, ...rest] = messages;
    const hasSystem = first?.role === 'system';
    this.system = hasSystem ? first.content : undefined;
    this.messages = hasSystem ? rest : [...messages];
  }

  reset(): void {
    this.messages = [];
    this.attachedImages = [];
    this.lastResult = undefined;
    this.#current.session.reset();
  }

  /** Drops the last reply, with the calls before it; false when the conversation does not end with one. */
  dropReply(): boolean {
    if (!isOfReply(this.messages.at(-1))) return false;
    while (isOfReply(this.messages.at(-1))) this.messages.pop();
    return true;
  }

  /**
   * Adds a message with the attached images and streams the reply to it. If it fails before a call was made, the message is removed
   * and its images are attached again. A reply that is aborted before its first token is removed. A call may have changed something,
   * so that it stays in the conversation.
   * @returns whether the reply is complete; the text of an aborted one is kept
   */
  async say(text: string, host: ReplyHost): Promise<boolean> {
    const before = this.messages;
    const images = this.attachedImages;
    this.attachedImages = [];
    this.messages = [...before, { role: 'user', content: text, ...(images.length === 0 ? {} : { images }) }];
    try {
      return await this.reply(host);
    } catch (error) {
      if (!this.hasCalledAfter(before.length)) {
        this.messages = before;
        this.attachedImages = images;
      }
      throw error;
    }
  }

  /** Whether calls were made after the first `numMessages` messages. */
  hasCalledAfter(numMessages: number): boolean {
    return this.messages.slice(numMessages).some(({ role }) => role === 'tool');
  }

  /** Streams the reply to the conversation: answers with calls, the results of which follow, until one has none. */
  async reply(host: ReplyHost): Promise<boolean> {
    this.#checkImages();
    for (let numRounds = 0; numRounds < maxRounds; numRounds += 1) {
      const offered = await this.#options.toolbox?.offer({
        ...host,
        check: (tool) => this.#faultOf(tool, host.signal),
      });
      const answer = await this.#answer(offered, numRounds === 0, host).catch((error: unknown) => {
        if (numRounds === 0 || !host.signal.aborted) throw error;
        return undefined; // the calls have been made: they stay in the conversation
      });
      if (answer === undefined || !answer.isWhole) return false;
      if (answer.calls.length === 0 || offered === undefined) return true;
      await host.endText();
      if (!(await this.#runCalls(answer.calls, offered, host.signal))) return false;
    }
    const [needed, available] = [maxRounds + 1, maxRounds];
    throw new CapacityError({ resource: 'calls before a reply', needed, available, unit: 'rounds' });
  }

  /** @throws {UsageError} for images and a model that takes none */
  #checkImages(): void {
    const numImages = this.messages.reduce((count, { images = [] }) => count + images.length, 0);
    if (numImages === 0 || this.model.imageToken !== undefined) return;
    const actual = `${this.name}, which takes none; /model continues with another, /reset starts over`;
    throw new UsageError(`expected a model for a conversation with ${countOfImages(numImages)}, got ${actual}`);
  }

  /** Why the model cannot be offered a tool. */
  async #faultOf(tool: ChatTool, signal: AbortSignal): Promise<string | undefined> {
    try {
      await prepareChat(this.model, { messages: [{ role: 'user', content: 'Hello' }], tools: [tool] }, { signal });
      return undefined;
    } catch (error) {
      if (!WinnowError.isInstance(error)) throw error;
      return error.message;
    }
  }

  /** Streams one answer and adds it to the messages. */
  async #answer(offered: OfferedTools | undefined, isFirst: boolean, host: ReplyHost): Promise<Answer> {
    const { limits, reasoning, toolChoice } = this.#options;
    const { sampling } = this.#current;
    const { jsonSchema, ...others } = limits;
    const tools = offered?.tools;
    const request: ChatRequest = {
      messages: this.transcript(),
      ...definedFields<ChatRequest>({ ...reasoning, jsonSchema, tools }),
      ...(isFirst ? definedFields<ChatRequest>({ toolChoice }) : {}),
    };
    const { signal, onPromptProgress } = host;
    const turn = await prepareChat(this.model, request, { signal });
    const options: GenerateOptions = {
      ...{ ...others, ...sampling, seed: this.#nextSeed, signal, onPromptProgress },
      ...turn.options,
    };
    const { parts, streamed } = await this.#stream(turn, options, host);
    this.#nextSeed += 1;
    const isWhole = streamed.result !== undefined;
    // if an answer was cut inside a call, the calls before it are not made either
    const calls = isWhole && parts.calls.every(({ isComplete }) => isComplete) ? parts.calls : [];
    const toolCalls = calls.map(({ id, name, arguments: values }) => ({ id, name, arguments: JSON.parse(values) }));
    this.messages.push({
      ...{ role: 'assistant', content: parts.text },
      ...(parts.reasoning === '' ? {} : { reasoning: parts.reasoning }),
      ...(toolCalls.length === 0 ? {} : { toolCalls }),
    });
    this.lastResult = streamed.result ?? this.lastResult;
    if (streamed.error !== undefined && !signal.aborted) throw streamed.error;
    return { calls, isWhole };
  }

  async #stream(turn: ChatTurn, options: GenerateOptions, { write, writeReasoning }: ReplyHost) {
    const reader = turn.createReader();
    const parts = { text: '', reasoning: '', calls: [] as ToolCallPart[] };
    const show = async (read: ReturnType<typeof reader.end>): Promise<void> => {
      for (const part of read) {
        if (part.type === 'tool-call') parts.calls.push(part);
        if (part.type !== 'text' && part.type !== 'reasoning') continue;
        parts[part.type] += part.text;
        await (part.type === 'text' ? write : writeReasoning)(part.text);
      }
    };
    const streamed = await streamGeneration(this.#current.session.generate(turn.prompt, options), (piece) =>
      show(reader.push(piece)),
    );
    await show(reader.end());
    return { parts, streamed };
  }

  /** Adds a result for every call, also when it is aborted or fails; false when it is aborted. */
  async #runCalls(calls: readonly ToolCallPart[], offered: OfferedTools, signal: AbortSignal): Promise<boolean> {
    const failures: unknown[] = [];
    const outcomeOf = async (call: ToolCallPart): Promise<string> => {
      if (failures.length > 0) return 'Error: this call was not made.';
      try {
        return await offered.run(call);
      } catch (error) {
        if (signal.aborted) return 'Error: the user stopped this call.';
        failures.push(error);
        return 'Error: this call failed.';
      }
    };
    for (const call of calls) {
      const content = await outcomeOf(call);
      this.messages.push({ role: 'tool', content, toolCallId: call.id, name: call.name });
    }
    if (failures.length > 0) throw failures[0];
    return !signal.aborted;
  }
}

/** Maximum number of consecutive answers with calls, since a model could go on calling forever. */
const maxRounds = 32;

interface Answer {
  readonly calls: readonly ToolCallPart[];
  readonly isWhole: boolean;
}

function isOfReply(message: ChatMessage | undefined): boolean {
  return message?.role === 'assistant' || message?.role === 'tool';
}

export interface ReplyHost extends Omit<ToolHost, 'check'> {
  readonly write: (piece: string) => Promise<void>;
  /** Ends the text of an answer that calls follow. */
  readonly endText: () => Promise<void>;
  readonly writeReasoning: (piece: string) => Promise<void>;
  readonly onPromptProgress: NonNullable<GenerateOptions['onPromptProgress']>;
}
