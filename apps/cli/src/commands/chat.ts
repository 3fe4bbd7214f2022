/** `winnow chat`: a conversation on the terminal, or from a pipe. */
import type { Command } from 'commander';
import type { ChatMessage, Session } from '@winnow/engine';
import { definedFields } from '@winnow/tensor';
import { runChatCommand, type ChatHost } from '../chat/commands.js';
import { checkedMessages, savedMessage } from '../chat/messages.js';
import { consentOf, questionText, requestText, type CallRequest, type Consent } from '../chat/mcp/consent.js';
import type { Toolbox } from '../chat/mcp/toolbox.js';
import { Conversation } from '../chat/conversation.js';
import { InterruptPolicy } from '../chat/interrupt-policy.js';
import type { CommandContext, CommandHost } from './command-host.js';
import { constraintOf } from '../flags/constraint.js';
import { limitsOf, samplingOf, seedOf } from '../flags/engine-options.js';
import { errorLine, InterruptedError, OutputClosedError, UsageError } from '../errors/errors.js';
import { LineReader } from '../terminal/line-reader.js';
import { displayName } from '../models/model-location.js';
import { ReasoningOutput } from '../terminal/reasoning-output.js';
import { checkConstraint } from '../terminal/summary.js';
import { openDraftedModel } from '../models/open-model.js';
import { SessionFiles } from '../models/session-files.js';
import { addGroup, flag, numberOption, numberRules } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import {
  addModelOption,
  addAttentionOptions,
  addLoadOptions,
  addSpeculativeOption,
  chooseModel,
  type LoadFlags,
} from '../flags/load.js';
import { addMcpOptions, flagWithoutServer, type McpFlags } from '../flags/mcp.js';
import {
  addGenerationOptions,
  addSessionOptions,
  type GenerationFlags,
  type SessionFlags,
} from '../flags/generation.js';

interface ChatFlags extends LoadFlags, GenerationFlags, SessionFlags, McpFlags {
  readonly system?: string;
  readonly reasoningEffort?: string;
  readonly maxReasoningTokens?: number;
}

const examples = `
Examples:
  $ winnow chat
  $ winnow chat model.gguf --system 'Answer in one sentence.' -c 8192
  $ winnow chat model.gguf --mcp 'npx -y @modelcontextprotocol/server-filesystem .'
  $ printf 'Hello\\n/stats\\n' | winnow chat ./model-folder --temperature 0

/help lists the commands of the chat. Ctrl-C stops a reply; pressed twice, it leaves the chat (exit code 130). Piped
input is one message per line, and the first error ends the program.
`;

export function registerChat(program: Command, host: CommandHost): void {
  const command = program.command('chat').argument('[model]', 'the model (default: the demo model)');
  addGroup(addModelOption(command), { heading: 'Prompt', common: [flag('--system <text>', 'system message')] });
  addGenerationOptions(command, 256, 'per reply');
  addGroup(command, {
    heading: 'Reasoning',
    common: [
      flag('--reasoning-effort <level>', 'how much the model reasons: what its template knows, or none'),
      numberOption(
        '--max-reasoning-tokens <n>',
        'maximum number of tokens of reasoning, after which the reply begins (default: unlimited)',
        numberRules.fromZero,
      ),
    ],
  });
  addMcpOptions(command);
  addSpeculativeOption(addLoadOptions(addAttentionOptions(command)));
  addSessionOptions(command, 'continue a conversation saved by --save-session');
  addGroup(command, { heading: 'Output', common: [flag('-q, --quiet', 'print only errors to stderr')] });
  describe(command, 'Chats with a model.', examples);
  command.action((model: string | undefined, flags: ChatFlags) =>
    host.run(flags, (context) => chat(chooseModel(model, flags.model), flags, context)),
  );
}

async function chat(modelName: string | undefined, flags: ChatFlags, context: CommandContext): Promise<void> {
  const { io, warn, signal } = context;
  const constraint = await constraintOf(flags, io, signal);
  const files = await SessionFiles.create(flags, signal);
  await using tools = await openToolbox(flags, context);
  await using model = await openDraftedModel(modelName, flags, context);
  if (model.chatTemplate === undefined) {
    throw new UsageError(
      `chat: expected a model with a chat template, got ${model.name}, which has none; try winnow run`,
    );
  }
  context.releaseInterrupts();
  const name = displayName(modelName, model.name);
  const seed = seedOf(flags, io.randomSeed);
  using session = await files.open(model, signal);
  const conversation = new Conversation(model, session, {
    limits: { ...limitsOf(flags), ...constraint },
    sampling: samplingOf(flags, model.defaultSampling, seed),
    seed,
    reasoning: definedFields({ reasoningEffort: flags.reasoningEffort, maxReasoningTokens: flags.maxReasoningTokens }),
    toolbox: tools.toolbox,
    toolChoice: flags.toolChoice,
    system: flags.system,
    name,
  });
  if (flags.loadSession !== undefined) conversation.replaceAll(savedMessages(session, flags.loadSession));
  if (flags.loadSession !== undefined && flags.system !== undefined) conversation.system = flags.system;
  const isTerminal = io.stdin.isTTY === true && io.stdout.isTTY === true;
  if (isTerminal) warn(`${name}, ${model.contextSize} tokens of context; /help lists the commands`);
  let failure: unknown;
  try {
    await new ChatLoop(conversation, isTerminal, context).run();
  } catch (error) {
    failure = error;
  }
  // also after a failure, so that no computation is lost
  const messages = conversation.transcript().map(savedMessage);
  failure = (await files.save(session, { metadata: { messages } })) ?? failure;
  if (failure !== undefined) throw failure;
}

/** Connects to the servers of `--mcp` before a model is loaded. */
async function openToolbox(
  flags: ChatFlags,
  { io, warn, signal, progress }: CommandContext,
): Promise<AsyncDisposable & { readonly toolbox: Toolbox | undefined }> {
  const lonely = flagWithoutServer(flags);
  if (lonely !== undefined) throw new UsageError(`${lonely}: expected --mcp with it, got none`);
  const { mcp: addresses, mcpAllow: allowed = [], mcpTimeout } = flags;
  if (addresses === undefined) return { toolbox: undefined, [Symbol.asyncDispose]: async () => {} };
  if (flags.grammar !== undefined) throw new UsageError('--grammar: cannot be combined with --mcp');
  progress.wait('connect');
  try {
    const { connectToolbox } = await import('../chat/mcp/connect.js');
    const { version } = io;
    const options = { addresses, allowed, version, timeoutMs: mcpTimeout * 1000, signal, warn };
    const toolbox = await connectToolbox(options);
    return { toolbox, [Symbol.asyncDispose]: () => toolbox.close() };
  } finally {
    progress.clear();
  }
}

/** The messages of a saved chat session. */
function savedMessages({ metadata }: Session, file: string): ChatMessage[] {
  const messages = (metadata as { readonly messages?: unknown } | null)?.messages;
  if (messages === undefined) throw new UsageError(`--load-session: expected the session of a chat, got ${file}`);
  return checkedMessages(messages, file);
}

/** Reads messages and streams replies until the user exits. */
class ChatLoop {
  readonly #conversation: Conversation;
  readonly #isTerminal: boolean;
  readonly #context: CommandContext;
  readonly #reader: LineReader;
  readonly #policy: InterruptPolicy;
  readonly #host: ChatHost;
  #replying: AbortController | undefined;
  #hasLeft = false;

  constructor(conversation: Conversation, isTerminal: boolean, context: CommandContext) {
    this.#conversation = conversation;
    this.#isTerminal = isTerminal;
    this.#context = context;
    this.#policy = new InterruptPolicy({
      stopReply: () => {
        this.#replying?.abort(new InterruptedError());
        return this.#replying !== undefined;
      },
      dropLine: () => {
        if (isTerminal) this.#reader.restartLine('(Ctrl-C again or /exit leaves)');
        else this.#leave();
      },
      leave: () => this.#leave(),
    });
    this.#reader = new LineReader(context.io, isTerminal, this.#policy.onInterrupt);
    this.#host = {
      conversation,
      print: (text) => context.out.write(text),
      reply: () => this.#streamReply((replyHost) => conversation.reply(replyHost)),
    };
  }

  async run(): Promise<void> {
    const { io, out } = this.#context;
    const unsubscribe = io.onInterrupt(this.#policy.onInterrupt);
    try {
      for (;;) {
        const line = await readMessage(this.#reader);
        if (line === undefined || this.#hasLeft) break;
        this.#policy.onInput();
        if (line.trim() === '') continue;
        if ((await this.#answer(line)) === 'exit' || this.#hasLeft) break;
      }
    } finally {
      unsubscribe();
      this.#reader.close();
    }
    if (this.#hasLeft) throw new InterruptedError();
    if (this.#isTerminal) await out.write('\n');
  }

  /** Runs a command or answers a message. On a terminal an error is printed, and the chat continues. */
  async #answer(line: string): Promise<'exit' | undefined> {
    const { io, warn } = this.#context;
    try {
      if (line.startsWith('/') && !line.startsWith('//')) {
        return (await runChatCommand(line, this.#host)) === 'exit' ? 'exit' : undefined;
      }
      const text = line.startsWith('//') ? line.slice(1) : line;
      await this.#streamReply((replyHost) => this.#conversation.say(text, replyHost));
    } catch (error) {
      if (error instanceof InterruptedError) warn('stopped');
      else if (!this.#isTerminal || error instanceof OutputClosedError) throw error;
      else io.stderr.write(`winnow: ${errorLine(error)}\n`);
    }
    return undefined;
  }

  async #streamReply(reply: (host: Parameters<Conversation['reply']>[0]) => Promise<boolean>): Promise<void> {
    const { io, out, progress, warn } = this.#context;
    const { signal } = (this.#replying = new AbortController());
    let last = '';
    const reasoning = new ReasoningOutput((text) => out.write(text), io);
    const endLine = async (): Promise<void> => {
      progress.clear();
      await reasoning.end();
      if (!last.endsWith('\n')) await out.write('\n');
      last = '\n';
    };
    progress.wait('prompt');
    try {
      const isWhole = await reply({
        signal,
        notice: warn,
        wait: (label) => progress.wait(label),
        ask: this.#isTerminal ? (request) => this.#askConsent(request, signal) : undefined,
        endText: async () => {
          progress.clear();
          if (last !== '') await endLine();
        },
        onPromptProgress: ({ processedTokens, totalTokens }) =>
          progress.show('prompt', processedTokens, totalTokens, 'tokens'),
        write: async (piece) => {
          progress.clear();
          await reasoning.end();
          last = piece;
          await out.write(piece);
        },
        writeReasoning: async (piece) => {
          progress.clear();
          await reasoning.write(piece);
        },
      });
      await endLine();
      const isFull = this.#conversation.lastResult?.finishReason === 'context';
      if (!isWhole) warn('stopped');
      else if (isFull) warn('the context is full; /reset starts over');
      if (isWhole && this.#conversation.lastResult) checkConstraint(this.#conversation.lastResult);
    } finally {
      this.#replying = undefined;
      progress.clear();
    }
  }

  /** Asks until there is an answer. The end of the input is no consent. */
  async #askConsent(request: CallRequest, signal: AbortSignal): Promise<Consent> {
    await this.#context.out.write(requestText(request));
    for (;;) {
      const line = await this.#reader.ask(questionText(request), signal);
      const consent = line === undefined ? 'no' : consentOf(line);
      if (consent !== undefined) return consent;
    }
  }

  #leave(): void {
    this.#hasLeft = true;
    this.#replying?.abort(new InterruptedError());
    this.#reader.close();
  }
}

/** One message: a line, continued on the next one while it ends with a backslash. */
async function readMessage(reader: LineReader): Promise<string | undefined> {
  let message = await reader.next('> ');
  while (message?.endsWith('\\')) {
    const more = await reader.next('. ');
    message = `${message.slice(0, -1)}\n${more ?? ''}`;
    if (more === undefined) break;
  }
  return message;
}
