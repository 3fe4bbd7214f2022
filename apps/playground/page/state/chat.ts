/** The conversations of the page and the answer that is being written. */
import { batch, signal, type Signal } from '@preact/signals';
import type { OfferedTools } from '@winnow/mcp';
import { ChatError, errorText, type ChatBackend, type ChatCall, type ModelChoice } from '../backend/contract.js';
import { AnswerBuilder } from './answer.js';
import { promptText, readText } from './attachments.js';
import type { History } from './database.js';
import { drawSmaller } from './draw-smaller.js';
import { checkImageBytes, readImage } from './images.js';
import { promptOf } from './prompt.js';
import {
  titleOf,
  userMessage,
  type Attachment,
  type Conversation,
  type MadeCall,
  type Message,
  type MessageState,
} from './messages.js';
import type { SettingsStore } from './settings.js';
import type { Tools } from './tools/tools.js';

export interface ChatOptions {
  readonly backend: ChatBackend;
  readonly history: History;
  readonly settings: SettingsStore;
  readonly tools: Tools;
  /** Why `history` lasts only as long as the page. Default: it is kept. */
  readonly storageProblem?: string;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly createId: () => string;
}

/** The screen shows about 25 states of an answer per second. */
const frameMs = 40;
/** What a crash of the tab may lose. */
const saveMs = 1000;
const numAlternatives = 5;
/** Answers with calls that may follow each other. A model that goes on calling would never end. */
const maxRounds = 32;

export class Chat {
  readonly models: Signal<readonly ModelChoice[]> = signal([]);
  readonly conversations: Signal<readonly Conversation[]> = signal([]);
  readonly current: Signal<Conversation | undefined> = signal(undefined);
  /** A signal each, so that an answer draws only itself. */
  readonly messages: Signal<readonly Signal<Message>[]> = signal([]);
  readonly isAnswering: Signal<boolean> = signal(false);
  /** Read by screen readers. */
  readonly announcement: Signal<string> = signal('');
  readonly problem: Signal<string> = signal('');
  /** Why conversations are not stored; empty while they are. */
  readonly storageProblem: Signal<string>;
  readonly needsKey: Signal<boolean> = signal(false);
  readonly #options: ChatOptions;
  #controller: AbortController | undefined;
  #answering: Promise<void> = Promise.resolve();

  constructor(options: ChatOptions) {
    this.#options = options;
    this.storageProblem = signal(options.storageProblem ?? '');
  }

  /** Asks for the models and restores the last conversation. */
  async start(): Promise<void> {
    const { history } = this.#options;
    await this.#stored(async () => {
      this.conversations.value = await history.conversations();
    });
    const [last] = this.conversations.value;
    if (last !== undefined) await this.open(last);
    await this.refreshModels();
  }

  async refreshModels(): Promise<void> {
    try {
      const models = await this.#options.backend.models();
      batch(() => {
        this.models.value = models;
        this.needsKey.value = false;
        this.problem.value = '';
      });
    } catch (error) {
      this.#report(error);
    }
  }

  /** The chosen model, or the first one that can chat. */
  model(): ModelChoice | undefined {
    const models = this.models.value.filter(({ canChat }) => canChat);
    return models.find(({ id }) => id === this.#options.settings.settings.value.model) ?? models[0];
  }

  async open(conversation: Conversation): Promise<void> {
    await this.stop();
    await this.#stored(async () => {
      const messages = await this.#options.history.messages(conversation.id);
      batch(() => {
        this.current.value = conversation;
        // an answer that was being written when the page was left
        this.messages.value = messages.map((message) =>
          signal(message.state === 'streaming' ? { ...message, state: 'stopped' } : message),
        );
      });
    });
  }

  async startNew(): Promise<void> {
    await this.stop();
    batch(() => {
      this.current.value = undefined;
      this.messages.value = [];
    });
  }

  async remove({ id }: Conversation): Promise<void> {
    if (this.current.value?.id === id) await this.startNew();
    await this.#stored(() => this.#options.history.remove(id));
    this.conversations.value = this.conversations.value.filter((other) => other.id !== id);
  }

  async send(text: string, attachments: readonly Attachment[] = []): Promise<void> {
    if (text.trim() === '' || this.isAnswering.value || this.model() === undefined) return;
    const conversation = await this.#touch(text);
    await this.#append(conversation, userMessage(text, attachments));
    this.#answer(conversation);
  }

  /**
   * @param others attachments of the same message
   * @throws {Error} for a file that the model cannot read, or that does not fit its context or the conversation with the others
   */
  async attach(file: File, others: readonly Attachment[]): Promise<Attachment> {
    const { id, contextSize = Infinity, takesImages } = this.model() ?? {};
    if (file.type.startsWith('image/')) {
      if (takesImages === false) throw new Error(`${file.name}: ${id} takes no images, only text`);
      const image = await readImage(file, drawSmaller);
      const earlier = this.messages.value.flatMap(({ value: { attachments = [] } }) => attachments);
      checkImageBytes(file.name, [...earlier, ...others, image]);
      return image;
    }
    const attachment = await readText(file);
    if (id === undefined || contextSize === Infinity) return attachment;
    const numTokens = await this.#options.backend.countTokens(id, promptText('', [...others, attachment]));
    if (numTokens < contextSize) return attachment;
    const [has, holds] = [numTokens.toLocaleString('en'), contextSize.toLocaleString('en')];
    const what = others.length === 0 ? 'it has' : 'the attachments have together';
    throw new Error(`${file.name}: ${what} ${has} tokens, and the context of the model holds ${holds}`);
  }

  /**
   * Replaces a message of the user; what followed it is removed, and the model answers again.
   * @param attachments those that it keeps
   */
  async edit(position: number, text: string, attachments: readonly Attachment[]): Promise<void> {
    const conversation = this.current.value;
    if (conversation === undefined || text.trim() === '') return;
    await this.#truncate(conversation, position);
    await this.#append(conversation, userMessage(text, attachments));
    this.#answer(await this.#touch(text));
  }

  /** Writes the last answer again. */
  async regenerate(): Promise<void> {
    const conversation = this.current.value;
    if (conversation === undefined || this.messages.value.length === 0) return;
    // with the answers whose calls led to it
    const numKept = 1 + this.messages.value.findLastIndex(({ value: { role } }) => role === 'user');
    await this.#truncate(conversation, numKept);
    this.#answer(conversation);
  }

  /** Resolves when the answer so far is stored. */
  async stop(): Promise<void> {
    this.#controller?.abort();
    await this.#answering;
  }

  /** The conversation of the next message, which moves to the top of the list. */
  async #touch(text: string): Promise<Conversation> {
    const { now, createId, history } = this.#options;
    const { id = createId(), title = titleOf(text) } = this.current.value ?? {};
    const conversation = { id, title, updatedAt: now() };
    batch(() => {
      this.current.value = conversation;
      this.conversations.value = [conversation, ...this.conversations.value.filter((other) => other.id !== id)];
    });
    await this.#stored(() => history.saveConversation(conversation));
    return conversation;
  }

  async #append(conversation: Conversation, message: Message): Promise<void> {
    const position = this.messages.value.length;
    this.messages.value = [...this.messages.value, signal(message)];
    await this.#save(conversation.id, position, message);
  }

  async #truncate(conversation: Conversation, position: number): Promise<void> {
    await this.stop();
    this.messages.value = this.messages.value.slice(0, position);
    await this.#stored(() => this.#options.history.truncate(conversation.id, position));
  }

  #answer(conversation: Conversation): void {
    this.#answering = this.#reply(conversation).catch((error: unknown) => void this.#report(error));
  }

  /** Writes answers, and makes the calls of each, until one has none. */
  async #reply({ id }: Conversation): Promise<void> {
    const model = this.model();
    if (model === undefined) return;
    const { signal: abort } = (this.#controller = new AbortController());
    batch(() => {
      this.problem.value = '';
      this.#options.tools.notices.value = [];
      this.announcement.value = 'The model is answering.';
      this.isAnswering.value = true;
    });
    try {
      for (let numRounds = 1; ; numRounds++) {
        const written = await this.#writeAnswer(id, model, { isFirst: numRounds === 1, abort });
        if (written === undefined || written.calls.length === 0) return;
        if (numRounds > maxRounds) throw new Error(`The model did not answer after ${maxRounds} answers with calls.`);
        await this.#makeCalls(id, written, abort);
        if (abort.aborted) return;
      }
    } finally {
      const last = this.messages.value.at(-1)?.value;
      batch(() => {
        this.isAnswering.value = false;
        if (last !== undefined) this.announcement.value = spoken(last);
      });
    }
  }

  /** @returns undefined for an answer that failed or was stopped */
  async #writeAnswer(id: string, model: ModelChoice, { isFirst, abort }: Round): Promise<Written | undefined> {
    const { backend, tools, now } = this.#options;
    const position = this.messages.value.length;
    const builder = new AnswerBuilder(model.id, now);
    const shown = signal(builder.message('streaming'));
    this.messages.value = [...this.messages.value, shown];
    const show = (state?: MessageState, error?: string): Promise<void> => {
      shown.value = builder.message(state, error);
      return this.#save(id, position, shown.value);
    };
    try {
      await show('streaming');
      const offered = await tools.offer(model.id, abort);
      const call = this.#callOf(model, position, { ...offered, isFirst });
      await drain(backend.chat(call, abort), builder, shown, () => show('streaming'));
      await show();
      return { shown, position, offered, calls: shown.value.calls ?? [] };
    } catch (error) {
      if (abort.aborted) await show('stopped');
      else await show('failed', this.#report(error));
      return undefined;
    }
  }

  /** One call after the other; those that are not made when the user stops have no result. */
  async #makeCalls(id: string, { shown, position, offered, calls }: Written, abort: AbortSignal): Promise<void> {
    for (const [index, call] of calls.entries()) {
      const result = await offered.run(call).catch((error: unknown) => {
        if (abort.aborted) return undefined;
        throw error;
      });
      if (result === undefined) {
        shown.value = { ...shown.value, state: 'stopped' };
      } else {
        const made = (shown.value.calls ?? []).map((other, at) => (at === index ? { ...other, result } : other));
        shown.value = { ...shown.value, calls: made };
      }
      await this.#save(id, position, shown.value);
      if (result === undefined) return;
    }
  }

  /** @param numMessages how many of the messages the model reads */
  #callOf(
    model: ModelChoice,
    numMessages: number,
    { tools, isFirst }: Pick<OfferedTools, 'tools'> & Pick<Round, 'isFirst'>,
  ): ChatCall {
    const { systemPrompt, sampling, jsonSchema, showsTokens, requiresCall } = this.#options.settings.settings.value;
    const said = this.messages.value.slice(0, numMessages).map(({ value }) => value);
    return {
      model: model.id,
      messages: promptOf(systemPrompt, said),
      sampling,
      ...(tools.length === 0 ? {} : { tools, requiresCall: requiresCall && isFirst }),
      ...(jsonSchema.trim() === '' ? {} : { jsonSchema: JSON.parse(jsonSchema) as Record<string, unknown> }),
      ...(showsTokens ? { numAlternatives } : {}),
    };
  }

  #save(id: string, position: number, message: Message): Promise<void> {
    return this.#stored(() => this.#options.history.saveMessage(id, position, message));
  }

  /** Runs `access`; the conversation goes on when the browser cannot store it, such as on a full disk. */
  async #stored(access: () => Promise<void>): Promise<void> {
    try {
      await access();
      this.storageProblem.value = this.#options.storageProblem ?? '';
    } catch (error) {
      this.storageProblem.value = `The browser does not store conversations: ${errorText(error)}`;
    }
  }

  /** @returns what went wrong */
  #report(error: unknown): string {
    const message = errorText(error);
    batch(() => {
      this.needsKey.value = error instanceof ChatError && error.code === 'unauthorized';
      this.problem.value = message;
    });
    return message;
  }
}

/** One of the answers to a message. */
interface Round {
  readonly isFirst: boolean;
  readonly abort: AbortSignal;
}

/** An answer that is complete. */
interface Written {
  readonly shown: Signal<Message>;
  readonly position: number;
  readonly offered: OfferedTools;
  readonly calls: readonly MadeCall[];
}

/** Passes events on, shows the answer at the rate of the screen, and stores it now and then. */
async function drain(
  events: ReturnType<ChatBackend['chat']>,
  builder: AnswerBuilder,
  shown: Signal<Message>,
  save: () => Promise<void>,
): Promise<void> {
  let isStale = false;
  const frames = setInterval(() => {
    if (isStale) shown.value = builder.message('streaming');
    isStale = false;
  }, frameMs);
  const saves = setInterval(() => void save(), saveMs);
  try {
    for await (const event of events) {
      builder.push(event);
      isStale = true;
    }
  } finally {
    clearInterval(frames);
    clearInterval(saves);
  }
}

function spoken({ state, content, error }: Message): string {
  if (state === 'failed') return `The answer failed: ${error ?? ''}`;
  return `${state === 'stopped' ? 'Stopped. ' : ''}Answer: ${content}`;
}
