/** Reads messages and streams replies until the user leaves. */
import type { CallRequest, Consent } from '@winnow/mcp';
import { errorLine, InterruptedError, OutputClosedError } from '../errors/errors.js';
import { countOfImages } from '../images/read-image.js';
import { paintOf, plain } from '../terminal/colors.js';
import { HistoryFile, historyPath } from '../terminal/history-file.js';
import type { CliIo } from '../terminal/io.js';
import { LineReader } from '../terminal/line-reader.js';
import type { Output } from '../terminal/output.js';
import type { Progress } from '../terminal/progress.js';
import { ReplyView } from '../terminal/reply-view.js';
import { checkConstraint } from '../terminal/summary.js';
import { commandNames, fileCommands, runChatCommand, type ChatHost } from './commands.js';
import { completeLine } from './completion.js';
import type { Conversation, ReplyHost } from './conversation.js';
import { InterruptPolicy } from './interrupt-policy.js';
import { consentOf, questionText, refusalText, requestText } from './mcp/texts.js';
import { readMessage } from './read-message.js';

export interface ChatContext {
  readonly io: CliIo;
  readonly out: Output;
  readonly progress: Progress;
  readonly warn: (text: string) => void;
}

export interface ChatLoopOptions {
  readonly isTerminal: boolean;
  readonly hasHistory: boolean;
  /** Replies are Markdown, whose colors a terminal shows. */
  readonly isMarkdown: boolean;
  readonly switchModel: (name: string, signal: AbortSignal) => Promise<void>;
}

export class ChatLoop {
  readonly #conversation: Conversation;
  readonly #options: ChatLoopOptions;
  readonly #context: ChatContext;
  readonly #reader: LineReader;
  readonly #policy: InterruptPolicy;
  readonly #host: ChatHost;
  /** Aborts what is going on: a reply, or a model that is loaded. */
  #working: AbortController | undefined;
  #hasLeft = false;

  constructor(conversation: Conversation, options: ChatLoopOptions, context: ChatContext) {
    this.#conversation = conversation;
    this.#options = options;
    this.#context = context;
    this.#policy = new InterruptPolicy({
      stopReply: () => {
        this.#working?.abort(new InterruptedError());
        return this.#working !== undefined;
      },
      dropLine: () => {
        if (options.isTerminal) this.#reader.restartLine('(Ctrl-C again or /exit leaves)');
        else this.#leave();
      },
      leave: () => this.#leave(),
    });
    this.#reader = this.#openReader();
    this.#host = {
      conversation,
      print: (text) => context.out.write(text),
      notice: context.warn,
      reply: () => this.#streamReply((replyHost) => conversation.reply(replyHost)),
      say: (text) => this.#streamReply((replyHost) => conversation.say(text, replyHost)),
      switchModel: (name) => this.#abortable((signal) => options.switchModel(name, signal)),
      abortable: (work) => this.#abortable(work),
    };
  }

  async run(): Promise<void> {
    const { io, out } = this.#context;
    const unsubscribe = io.onInterrupt(this.#policy.onInterrupt);
    const paint = paintOf(io.stdout, io.env);
    const prompts = { first: paint(['bold', 'cyan'], 'you> '), more: paint('cyan', '...> ') };
    try {
      for (;;) {
        const message = await readMessage(this.#reader, prompts);
        if (message === undefined || this.#hasLeft) break;
        this.#policy.onInput();
        if (message.trim() === '') continue;
        if ((await this.#answer(message)) === 'exit' || this.#hasLeft) break;
      }
    } finally {
      unsubscribe();
      this.#reader.close();
    }
    const numUnsent = this.#conversation.attachedImages.length;
    if (numUnsent > 0) this.#context.warn(`${countOfImages(numUnsent)} not sent: no message followed`);
    if (this.#hasLeft) throw new InterruptedError();
    if (this.#options.isTerminal) await out.write('\n');
  }

  /** Prints a notice, even while the user is typing a line. */
  notice(text: string): void {
    this.#reader.interject(() => this.#context.warn(text));
  }

  #openReader(): LineReader {
    const { io, warn } = this.#context;
    const { isTerminal, hasHistory } = this.#options;
    const path = isTerminal && hasHistory ? historyPath(io.env) : undefined;
    return new LineReader(io, {
      isTerminal,
      onInterrupt: this.#policy.onInterrupt,
      onKey: this.#policy.onInput,
      complete: (line) => completeLine(line, commandNames, fileCommands),
      history: path === undefined ? undefined : new HistoryFile(path, warn),
    });
  }

  /** Runs a command or answers a message. On a terminal an error is printed, and the chat continues. */
  async #answer(message: string): Promise<'exit' | undefined> {
    const { io, warn } = this.#context;
    try {
      if (message.startsWith('/') && !message.startsWith('//')) {
        return (await runChatCommand(message, this.#host)) === 'exit' ? 'exit' : undefined;
      }
      const text = message.startsWith('//') ? message.slice(1) : message;
      await this.#host.say(text);
    } catch (error) {
      if (error instanceof InterruptedError) warn('stopped');
      else if (!this.#options.isTerminal || error instanceof OutputClosedError) throw error;
      else io.stderr.write(`winnow: ${errorLine(error)}\n`);
    }
    return undefined;
  }

  async #abortable<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { signal } = (this.#working = new AbortController());
    try {
      return await work(signal);
    } finally {
      this.#working = undefined;
      this.#context.progress.clear();
    }
  }

  #streamReply(reply: (host: ReplyHost) => Promise<boolean>): Promise<void> {
    const { progress, warn } = this.#context;
    return this.#abortable(async (signal) => {
      const view = await this.#openView();
      progress.wait('prompt');
      const isWhole = await reply({
        signal,
        notice: warn,
        wait: (label) => progress.wait(label),
        ask: (request) => this.#askConsent(request, signal),
        onPromptProgress: ({ processedTokens, totalTokens }) =>
          progress.show('prompt', processedTokens, totalTokens, 'tokens'),
        write: (piece) => (progress.clear(), view.write(piece)),
        writeReasoning: (piece) => (progress.clear(), view.writeReasoning(piece)),
        endText: () => (progress.clear(), view.endText()),
      });
      progress.clear();
      await view.end();
      const { lastResult } = this.#conversation;
      if (!isWhole) warn('stopped');
      else if (lastResult?.finishReason === 'context') warn('the context is full; /reset starts over');
      if (isWhole && lastResult) checkConstraint(lastResult);
    });
  }

  async #openView(): Promise<ReplyView> {
    const { io, out } = this.#context;
    const paint = paintOf(io.stdout, io.env);
    const isColored = out.isTerminal && paint !== plain && this.#options.isMarkdown;
    // the grammars for code take a while to load, and pipes do not need them
    const colors = isColored ? await import('../terminal/markdown-colors.js') : undefined;
    const createMarkdown = colors === undefined ? undefined : () => new colors.MarkdownColors(paint);
    return new ReplyView({ out, label: shortName(this.#conversation.name), paint, createMarkdown });
  }

  /** Asks until there is an answer. The end of the input does not count as consent, and neither does a pipe. */
  async #askConsent(request: CallRequest, signal: AbortSignal): Promise<Consent> {
    if (!this.#options.isTerminal) {
      this.#context.warn(refusalText(request));
      return 'no';
    }
    await this.#context.out.write(requestText(request));
    for (;;) {
      const line = await this.#reader.ask(questionText(request), signal);
      const consent = line === undefined ? 'no' : consentOf(line);
      if (consent !== undefined) return consent;
    }
  }

  #leave(): void {
    this.#hasLeft = true;
    this.#working?.abort(new InterruptedError());
    this.#reader.close();
  }
}

/** The name in front of each reply has to be short. */
function shortName(name: string): string {
  const characters = [...name];
  return characters.length <= 24 ? name : `${characters.slice(0, 23).join('')}…`;
}
