/** `winnow chat`: a conversation on the terminal, or from a pipe. */
import type { Command } from 'commander';
import type { ChatMessage, Session } from '@winnow/engine';
import { runChatCommand, type ChatHost } from '../chat/commands.js';
import { checkedMessages } from '../chat/messages.js';
import { Conversation } from '../chat/conversation.js';
import { InterruptPolicy } from '../chat/interrupt-policy.js';
import type { CommandContext, CommandHost } from '../command-host.js';
import { constraintOf } from '../flags/constraint.js';
import { attentionOf, limitsOf, samplingOf, seedOf } from '../flags/engine-options.js';
import { errorLine, InterruptedError, OutputClosedError, UsageError } from '../errors.js';
import { LineReader } from '../line-reader.js';
import { displayName } from '../model-location.js';
import { openModel } from '../open-model.js';
import { addGroup, flag } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import { addModelOption, addAttentionOptions, addLoadOptions, chooseModel, type LoadFlags } from '../flags/load.js';
import {
  addGenerationOptions,
  addSessionOptions,
  type GenerationFlags,
  type SessionFlags,
} from '../flags/generation.js';

interface ChatFlags extends LoadFlags, GenerationFlags, SessionFlags {
  readonly system?: string;
}

const examples = `
Examples:
  $ winnow chat
  $ winnow chat model.gguf --system 'Answer in one sentence.' -c 8192
  $ printf 'Hello\\n/stats\\n' | winnow chat ./model-folder --temp 0

/help lists the commands of the chat. Ctrl-C stops a reply; pressed twice, it leaves the chat (exit code 130). Piped
input is one message per line, and the first error ends the program.
`;

export function registerChat(program: Command, host: CommandHost): void {
  const command = program.command('chat').argument('[model]', 'the model (default: the demo model)');
  addGroup(addModelOption(command), { heading: 'Prompt', common: [flag('--system <text>', 'system message')] });
  addGenerationOptions(command, 256, 'per reply');
  addLoadOptions(addAttentionOptions(command));
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
  await using model = await openModel(modelName, flags, context, attentionOf(flags));
  if (model.chatTemplate === undefined) {
    throw new UsageError(
      `chat: expected a model with a chat template, got ${model.name}, which has none; try winnow run`,
    );
  }
  context.releaseInterrupts();
  const name = displayName(modelName, model.name);
  const seed = seedOf(flags, io.randomSeed);
  const session =
    flags.loadSession === undefined ? model.createSession() : await model.restoreSession(flags.loadSession);
  const conversation = new Conversation(model, session, {
    limits: { ...limitsOf(flags), ...constraint },
    sampling: samplingOf(flags, model.defaultSampling, seed),
    seed,
    system: flags.system,
    name,
  });
  if (flags.loadSession !== undefined) conversation.replaceAll(savedMessages(session, flags.loadSession));
  if (flags.loadSession !== undefined && flags.system !== undefined) conversation.system = flags.system;
  const isTerminal = io.stdin.isTTY === true && io.stdout.isTTY === true;
  if (isTerminal) warn(`${name}, ${model.contextSize} tokens of context; /help lists the commands`);
  try {
    await converse(conversation, isTerminal, context);
  } finally {
    if (flags.saveSession !== undefined) {
      const messages = conversation.transcript().map(({ role, content }) => ({ role, content }));
      await session.save(flags.saveSession, { metadata: { messages } });
    }
    session.dispose();
  }
}

/** The messages of a session that a chat has saved. */
function savedMessages({ metadata }: Session, file: string): ChatMessage[] {
  const messages = (metadata as { readonly messages?: unknown } | null)?.messages;
  if (messages === undefined) throw new UsageError(`--load-session: expected the session of a chat, got ${file}`);
  return checkedMessages(messages, file);
}

async function converse(conversation: Conversation, isTerminal: boolean, context: CommandContext): Promise<void> {
  const { io, out, progress, warn } = context;
  let replying: AbortController | undefined;
  let hasLeft = false;
  const policy = new InterruptPolicy({
    stopReply: () => {
      replying?.abort(new InterruptedError());
      return replying !== undefined;
    },
    dropLine: () => {
      if (isTerminal) reader.restartLine('(Ctrl-C again or /exit leaves)');
      else leave();
    },
    leave: () => leave(),
  });
  const leave = (): void => {
    hasLeft = true;
    replying?.abort(new InterruptedError());
    reader.close();
  };
  const reader = new LineReader(io, isTerminal, policy.onInterrupt);
  const unsubscribe = io.onInterrupt(policy.onInterrupt);

  const streamReply = async (
    reply: (host: Parameters<Conversation['reply']>[0]) => Promise<boolean>,
  ): Promise<void> => {
    replying = new AbortController();
    let last = '';
    try {
      const isWhole = await reply({
        signal: replying.signal,
        onPromptProgress: ({ processedTokens, totalTokens }) =>
          progress.show('prompt', processedTokens, totalTokens, 'tokens'),
        write: async (piece) => {
          progress.clear();
          if (piece !== '') last = piece;
          await out.write(piece);
        },
      });
      if (!last.endsWith('\n')) await out.write('\n');
      if (!isWhole) warn('stopped');
      else if (conversation.lastResult?.finishReason === 'context') warn('the context is full; /reset starts afresh');
    } finally {
      replying = undefined;
      progress.clear();
    }
  };
  const host: ChatHost = {
    conversation,
    print: (text) => out.write(text),
    reply: () => streamReply((replyHost) => conversation.reply(replyHost)),
  };

  try {
    for (;;) {
      const line = await readMessage(reader);
      if (line === undefined || hasLeft) break;
      policy.onInput();
      if (line.trim() === '') continue;
      try {
        if (line.startsWith('/') && !line.startsWith('//')) {
          if ((await runChatCommand(line, host)) === 'exit') break;
        } else {
          const text = line.startsWith('//') ? line.slice(1) : line;
          await streamReply((replyHost) => conversation.say(text, replyHost));
        }
      } catch (error) {
        if (error instanceof InterruptedError) warn('stopped');
        else if (!isTerminal || error instanceof OutputClosedError) throw error;
        else io.stderr.write(`winnow: ${errorLine(error)}\n`);
      }
      if (hasLeft) break;
    }
  } finally {
    unsubscribe();
    reader.close();
  }
  if (hasLeft) throw new InterruptedError();
  if (isTerminal) await out.write('\n');
}

/** One message: a line, and the next one as long as it ends with a backslash. */
async function readMessage(reader: LineReader): Promise<string | undefined> {
  let message = await reader.next('> ');
  while (message?.endsWith('\\')) {
    const more = await reader.next('. ');
    message = `${message.slice(0, -1)}\n${more ?? ''}`;
    if (more === undefined) break;
  }
  return message;
}
