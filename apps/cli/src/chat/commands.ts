/** The /commands of the chat. */
import { resolve } from 'node:path';
import type { ChatMessage } from '@winnow/engine';
import { FormatError } from '@winnow/tensor';
import { UsageError } from '../errors/errors.js';
import { countOfImages, readImage } from '../images/read-image.js';
import { pathAndText } from './typed-path.js';
import { formatBytes, formatTable } from '../terminal/format.js';
import { summaryLine } from '../terminal/summary.js';
import type { FileCommands } from './completion.js';
import type { Conversation } from './conversation.js';
import { listText } from './mcp/texts.js';
import { checkedMessages, savedMessage } from './messages.js';
import { decodeUtf8, readBytesOf } from '../terminal/read-text.js';
import { writeOutputFile } from '../terminal/write-file.js';

export interface ChatHost {
  readonly conversation: Conversation;
  /** Writes to stdout. */
  readonly print: (text: string) => Promise<void>;
  /** Says what happened. */
  readonly notice: (text: string) => void;
  /** Streams a reply to the current messages. */
  readonly reply: () => Promise<void>;
  /** Adds a message and streams the reply to it. */
  readonly say: (text: string) => Promise<void>;
  /** Loads another model in place of the current one. */
  readonly switchModel: (name: string) => Promise<void>;
  /** Runs work that Ctrl-C aborts. */
  readonly abortable: <T>(work: (signal: AbortSignal) => Promise<T>) => Promise<T>;
}

export type Outcome = 'continue' | 'exit';

interface ChatCommand {
  readonly usage: string;
  readonly help: string;
  readonly run: (argument: string, host: ChatHost) => Promise<Outcome | void>;
}

const commands: Readonly<Record<string, ChatCommand>> = {
  help: { usage: '/help', help: 'print this list', run: (_argument, { print }) => print(helpText()) },
  reset: {
    usage: '/reset',
    help: 'forget the conversation; the system message stays',
    run: async (_argument, { conversation }) => conversation.reset(),
  },
  system: {
    usage: '/system [TEXT]',
    help: 'set the system message; without TEXT remove it',
    run: async (argument, { conversation }) => {
      conversation.system = argument === '' ? undefined : argument;
    },
  },
  history: {
    usage: '/history',
    help: 'print the conversation',
    run: (_argument, { conversation, print }) => print(conversation.transcript().map(historyText).join('')),
  },
  regen: { usage: '/regen', help: 'replace the last reply by a new one', run: (_argument, host) => regenerate(host) },
  image: {
    usage: '/image [PATH [TEXT]]',
    help: 'attach an image to the next message, or send it with TEXT; without PATH detach all',
    run: attachImage,
  },
  save: {
    usage: '/save FILE',
    help: 'write the conversation to a JSON file',
    run: async (argument, { conversation, notice }) => {
      const path = resolve(needFile('/save', argument));
      await save(path, conversation);
      const { length } = conversation.messages;
      notice(`saved ${length} ${length === 1 ? 'message' : 'messages'} to ${path}`);
    },
  },
  load: {
    usage: '/load FILE',
    help: 'replace the conversation by a saved one',
    run: async (argument, { conversation }) => {
      const messages = await load(needFile('/load', argument));
      conversation.reset();
      conversation.replaceAll(messages);
    },
  },
  model: {
    usage: '/model [MODEL]',
    help: 'continue with another model; without MODEL print the current one',
    run: (argument, { conversation, print, switchModel }) =>
      argument === '' ? print(`${conversation.name}\n`) : switchModel(argument),
  },
  mcp: {
    usage: '/mcp',
    help: 'print the tools of the servers of --mcp',
    run: (_argument, { conversation, print }) => print(toolsText(conversation)),
  },
  stats: {
    usage: '/stats',
    help: 'print tokens, memory and speed',
    run: (_argument, { conversation, print }) => print(statsText(conversation)),
  },
  exit: { usage: '/exit', help: 'leave (also Ctrl-D)', run: async () => 'exit' },
};

export const commandNames: readonly string[] = Object.keys(commands);

export const fileCommands: FileCommands = {
  withFile: new Set(['save', 'load', 'model']),
  withFileAndText: new Set(['image']),
};

/** Runs a line that starts with `/`. @throws {UsageError} for an unknown command */
export async function runChatCommand(line: string, host: ChatHost): Promise<Outcome> {
  const [, name = '', argument = ''] = /^\/(\S*)\s*(.*)$/s.exec(line) ?? [];
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command === undefined) throw new UsageError(`/${name}: unknown command, see /help`);
  return (await command.run(argument.trim(), host)) ?? 'continue';
}

function helpText(): string {
  const rows = Object.values(commands).map(({ usage, help }) => [usage, help]);
  const notes =
    'A line that ends with \\ continues on the next line; """ begins and ends a message of several lines.\n' +
    'Write // to start a message with /.\n';
  return `${formatTable(rows)}Ctrl-C stops a reply; twice, it leaves.\n${notes}`;
}

async function regenerate({ conversation, reply }: ChatHost): Promise<void> {
  const { messages } = conversation;
  const before = [...messages];
  conversation.dropReply();
  const numKept = messages.length;
  if (messages.at(-1)?.role !== 'user') {
    conversation.messages = before;
    throw new UsageError('/regen: expected a message to reply to, got none');
  }
  try {
    await reply();
  } catch (error) {
    if (!conversation.hasCalledAfter(numKept)) conversation.messages = before;
    throw error;
  }
}

async function attachImage(argument: string, { conversation, notice, say, abortable }: ChatHost): Promise<void> {
  if (argument === '') {
    conversation.attachedImages = [];
    return;
  }
  const { path, text } = pathAndText(argument);
  if (conversation.model.imageToken === undefined) {
    throw new UsageError(`/image: expected a model that takes images, got ${conversation.name}, which takes none`);
  }
  const file = needFile('/image', path);
  const image = await abortable((signal) => readImage(file, signal));
  conversation.attachedImages = [...conversation.attachedImages, image];
  if (text !== '') return say(text);
  notice(`attached ${path}; ${countOfImages(conversation.attachedImages.length)} for the next message`);
}

function needFile(command: string, argument: string): string {
  if (argument === '') throw new UsageError(`${command}: expected a file name, got none`);
  return argument;
}

async function save(path: string, conversation: Conversation): Promise<void> {
  const content = { model: conversation.name, messages: conversation.transcript().map(savedMessage) };
  await writeOutputFile(path, `${JSON.stringify(content, undefined, 2)}\n`);
}

/** @throws {FormatError} for a file that is not a saved conversation */
async function load(path: string): Promise<ChatMessage[]> {
  const text = decodeUtf8(await readBytesOf(path), path);
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (cause) {
    throw new FormatError({ source: path, field: 'file', message: 'expected JSON, as /save writes it' }, { cause });
  }
  return checkedMessages((content as { messages?: unknown } | null)?.messages, path);
}

function historyText({ role, content, images = [], toolCalls = [], name }: ChatMessage): string {
  const shown = images.length === 0 ? '' : ` (${countOfImages(images.length)})`;
  const speaker = `${name === undefined ? role : `${role} ${name}`}${shown}`;
  const calls = toolCalls.map((call) => `${role} calls ${call.name} ${JSON.stringify(call.arguments)}\n`).join('');
  return `${content === '' && calls !== '' ? '' : `${speaker}: ${content.trimEnd()}\n`}${calls}`;
}

function toolsText({ toolbox }: Conversation): string {
  return toolbox === undefined ? 'no servers; winnow chat --mcp adds one\n' : listText(toolbox);
}

function statsText(conversation: Conversation): string {
  const { model, lastResult, numCachedTokens, messages } = conversation;
  const rows = [
    ['model', `${conversation.name} on ${model.backend}`],
    ['messages', `${messages.length}`],
    ['context', `${numCachedTokens} of ${model.contextSize} tokens`],
    ['memory plan', formatBytes(model.plan.totalBytes)],
    ['last reply', lastResult === undefined ? 'none' : summaryLine(lastResult)],
  ];
  return formatTable(rows);
}
