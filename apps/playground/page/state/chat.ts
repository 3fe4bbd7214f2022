/** The conversations of the page and the answer that is being written. */
import { batch, signal, type Signal } from '@preact/signals';
import { ChatError, errorText, type ChatBackend, type ChatCall, type ModelChoice } from '../backend/contract.js';
import { AnswerBuilder } from './answer.js';
import { promptText, readAttachment } from './attachments.js';
import type { History } from './database.js';
import {
  promptOf,
  titleOf,
  userMessage,
  type Attachment,
  type Conversation,
  type Message,
  type MessageState,
} from './messages.js';
import type { SettingsStore } from './settings.js';

export interface ChatOptions {
  readonly backend: ChatBackend;
  readonly history: History;
  readonly settings: SettingsStore;
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

  /** @throws {Error} for a file that is no text, or that does not fit the context of the model */
  async attach(file: File): Promise<Attachment> {
    const attachment = await readAttachment(file);
    const { id, contextSize = Infinity } = this.model() ?? {};
    if (id === undefined || contextSize === Infinity) return attachment;
    const numTokens = await this.#options.backend.countTokens(id, attachment.text);
    if (numTokens < contextSize) return attachment;
    const [has, holds] = [numTokens.toLocaleString('en'), contextSize.toLocaleString('en')];
    throw new Error(`${file.name}: it has ${has} tokens, and the context of the model holds ${holds}`);
  }

  /** Replaces a message of the user; what followed it is removed, and the model answers again. */
  async edit(position: number, text: string): Promise<void> {
    const conversation = this.current.value;
    if (conversation === undefined || text.trim() === '') return;
    const attachments = this.messages.value[position]?.value.attachments;
    await this.#truncate(conversation, position);
    await this.#append(conversation, userMessage(text, attachments));
    this.#answer(await this.#touch(text));
  }

  /** Writes the last answer again. */
  async regenerate(): Promise<void> {
    const conversation = this.current.value;
    const last = this.messages.value.at(-1)?.value;
    if (conversation === undefined || last === undefined) return;
    const numKept = this.messages.value.length - (last.role === 'assistant' ? 1 : 0);
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
    this.#answering = this.#writeAnswer(conversation).catch((error: unknown) => void this.#report(error));
  }

  async #writeAnswer({ id }: Conversation): Promise<void> {
    const model = this.model();
    if (model === undefined) return;
    const { backend, now } = this.#options;
    const controller = new AbortController();
    this.#controller = controller;
    const call = this.#callOf(model);
    const position = this.messages.value.length;
    const builder = new AnswerBuilder(model.id, now);
    const shown = signal(builder.message('streaming'));
    batch(() => {
      this.problem.value = '';
      this.announcement.value = 'The model is answering.';
      this.isAnswering.value = true;
      this.messages.value = [...this.messages.value, shown];
    });
    const show = (state?: MessageState, error?: string): Promise<void> => {
      shown.value = builder.message(state, error);
      return this.#save(id, position, shown.value);
    };
    try {
      await show('streaming');
      await drain(backend.chat(call, controller.signal), builder, shown, () => show('streaming'));
      await show();
    } catch (error) {
      if (controller.signal.aborted) await show('stopped');
      else await show('failed', this.#report(error));
    } finally {
      batch(() => {
        this.isAnswering.value = false;
        this.announcement.value = spoken(shown.value);
      });
    }
  }

  #callOf(model: ModelChoice): ChatCall {
    const { systemPrompt, sampling, jsonSchema, showsTokens } = this.#options.settings.settings.value;
    const said = this.messages.value.map(({ value: { role, content, attachments } }) => ({
      role,
      content: promptText(content, attachments),
    }));
    return {
      model: model.id,
      messages: promptOf(systemPrompt, said),
      sampling,
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
