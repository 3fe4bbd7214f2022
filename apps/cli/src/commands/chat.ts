/** `winnow chat`: a conversation on the terminal, or from a pipe. */
import type { Command } from 'commander';
import type { ChatMessage, Session } from '@winnow/engine';
import type { Toolbox } from '@winnow/mcp';
import { definedFields } from '@winnow/tensor';
import { ChatLoop } from '../chat/chat-loop.js';
import { Conversation } from '../chat/conversation.js';
import { checkedMessages, savedMessage, withLatestImages } from '../chat/messages.js';
import { ModelSlot } from '../chat/model-slot.js';
import type { CommandContext, CommandHost } from './command-host.js';
import { constraintOf } from '../flags/constraint.js';
import { limitsOf, seedOf } from '../flags/engine-options.js';
import { UsageError } from '../errors/errors.js';
import { countOfImages } from '../images/read-image.js';
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
  readonly markdown: boolean;
  readonly history: boolean;
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
  addGroup(command, {
    heading: 'Output',
    common: [
      flag('-q, --quiet', 'print only errors to stderr'),
      flag('--no-markdown', 'print replies on a terminal without colors of Markdown'),
      flag('--no-history', 'neither read nor write the file with lines of earlier chats'),
    ],
  });
  describe(command, 'Chats with a model.', examples);
  command.action((model: string | undefined, flags: ChatFlags) =>
    host.run(flags, (context) => chat(chooseModel(model, flags.model), flags, context)),
  );
}

async function chat(modelName: string | undefined, flags: ChatFlags, context: CommandContext): Promise<void> {
  const { io, warn, signal } = context;
  const constraint = await constraintOf(flags, io, signal);
  const files = await SessionFiles.create(flags, signal);
  let { warn: notice } = context;
  await using tools = await openToolbox(flags, { ...context, warn: (text) => notice(text) });
  const seed = seedOf(flags, io.randomSeed);
  await using slot = await ModelSlot.open(modelName, { flags, seed, files }, context);
  context.releaseInterrupts();
  const conversation = new Conversation(slot.current, {
    limits: { ...limitsOf(flags), ...constraint },
    seed,
    reasoning: definedFields({ reasoningEffort: flags.reasoningEffort, maxReasoningTokens: flags.maxReasoningTokens }),
    toolbox: tools.toolbox,
    toolChoice: flags.toolChoice,
    system: flags.system,
  });
  if (flags.loadSession !== undefined) {
    conversation.replaceAll(savedMessages(slot.current.session, flags.loadSession));
    if (flags.system !== undefined) conversation.system = flags.system;
  }
  const isTerminal = io.stdin.isTTY === true && io.stdout.isTTY === true;
  if (isTerminal) for (const line of banner(slot, modelName === undefined)) warn(line);
  const options = {
    isTerminal,
    hasHistory: flags.history,
    isMarkdown: flags.markdown && flags.grammar === undefined && flags.jsonSchema === undefined,
    switchModel: async (name: string, abort: AbortSignal) => {
      try {
        await slot.replace(name, { ...context, signal: abort });
        warn(banner(slot, false)[0] as string);
      } finally {
        conversation.use(slot.current);
      }
    },
  };
  let failure: unknown;
  try {
    const loop = new ChatLoop(conversation, options, context);
    notice = (text) => loop.notice(text);
    await loop.run();
  } catch (error) {
    failure = error;
  }
  // also after a failure, so that no computation is lost
  const { messages, numDropped } = withLatestImages(conversation.transcript(), maxSessionImageBytes);
  const metadata = { messages: messages.map(savedMessage) };
  failure = (await files.save(slot.current.session, { metadata })) ?? failure;
  if (flags.saveSession !== undefined && numDropped > 0) warn(droppedText(numDropped));
  if (failure !== undefined) throw failure;
}

/** Files of images in a session, whose messages have at most 16 MiB, in base64. */
const maxSessionImageBytes = 8 * 1024 * 1024;

function droppedText(numDropped: number): string {
  return `the session has no room for the ${countOfImages(numDropped)} before the latest; /save keeps all`;
}

/** Models of the hub for small computers. */
const realModels = [
  ['0.6 GB', 'hf:Qwen/Qwen3-0.6B-GGUF:q8_0'],
  ['1.1 GB', 'hf:HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF:q4_k_m'],
  ['2.5 GB', 'hf:Qwen/Qwen3-4B-GGUF:q4_k_m'],
] as const;

/** Names the model; for the demo model, which knows little, it also names models to download. */
function banner({ current: { name, model } }: ModelSlot, isDemo: boolean): string[] {
  const summary = `${name}, ${model.contextSize} tokens of context; /help lists the commands`;
  if (!isDemo) return [summary];
  return [
    summary,
    'this is the demo model, which knows a few old books and no more; real ones:',
    ...realModels.map(([size, name]) => `  ${size}  winnow chat ${name}`),
  ];
}

/** Connects to the servers of `--mcp` before a model is loaded. */
async function openToolbox(
  flags: ChatFlags,
  { io, warn, signal, progress }: CommandContext,
): Promise<AsyncDisposable & { readonly toolbox: Toolbox | undefined }> {
  const lonely = flagWithoutServer(flags);
  if (lonely !== undefined) throw new UsageError(`${lonely}: expected --mcp with it, got none`);
  const { mcp: addresses, mcpAllow: allowed = [], mcpHeader: headers = [], mcpTimeout } = flags;
  if (addresses === undefined) return { toolbox: undefined, [Symbol.asyncDispose]: async () => {} };
  if (flags.grammar !== undefined) throw new UsageError('--grammar: cannot be combined with --mcp');
  progress.wait('connect');
  try {
    const { connectToolbox } = await import('../chat/mcp/connect.js');
    const { env, version } = io;
    const toolbox = await connectToolbox({
      ...{ addresses, allowed, headers, env, version, signal, warn },
      variables: flags.mcpEnv ?? [],
      timeoutMs: mcpTimeout * 1000,
    });
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
