/** Answers that consist of messages with a header: those of gpt-oss, and of Functionary since version 3.2. */
import type { CallContext } from './call-context.js';
import { passArguments } from './json-calls.js';
import { captureUntil, peek, readSpace, readUntil, starts, startsWithOneOf, type Reading } from './text-input.js';

const messageMark = '<|message|>';
const startMark = '<|start|>';
/** What may end a message. */
const harmonyMarks = ['<|end|>', '<|call|>', '<|return|>', startMark, '<|channel|>'];
/** Headers have a channel, a recipient with a name of at most 128 characters, and a type. */
const maxHeaderLength = 512;

/**
 * Harmony: `<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...`. The channel
 * `analysis` is reasoning, a message to `functions.<name>` is a call, and everything else is text.
 * Source: https://cookbook.openai.com/articles/openai-harmony
 */
export function* readHarmony(context: CallContext): Reading<void> {
  const { input, writer } = context;
  for (;;) {
    while ((yield* startsWithOneOf(input, ['<|end|>', '<|call|>', '<|return|>', startMark])) !== undefined);
    if ((yield* peek(input)) === '') return;
    const header = yield* readHeader(context);
    if (header === undefined) {
      if ((yield* readUntil(input, harmonyMarks, (text) => writer.text(text))) === undefined) return;
      if (yield* starts(input, '<|channel|>')) writer.endText();
      continue;
    }
    yield* readMessage(context, header);
  }
}

interface Header {
  readonly channel: string;
  readonly recipient: string | undefined;
}

/** Undefined for text without a header, which is not consumed. */
function* readHeader({ input }: CallContext): Reading<Header | undefined> {
  const begins = ['<', ' ', 'a', '\n'];
  if (!begins.includes(yield* peek(input))) return undefined;
  input.keep();
  const text = yield* captureUntil(input, [messageMark], maxHeaderLength);
  if (text === undefined || !/^\s*(assistant)?(\s*to=\S+)?\s*<\|channel\|>/.test(text)) {
    input.restore();
    return undefined;
  }
  input.release();
  yield* starts(input, messageMark);
  const channels = [...text.matchAll(/<\|channel\|>\s*([a-z]+)/g)];
  const recipient = /\bto=([^\s<]+)/.exec(text)?.[1];
  return { channel: channels.at(-1)?.[1] ?? 'final', recipient: recipient === 'assistant' ? undefined : recipient };
}

function* readMessage(context: CallContext, { channel, recipient }: Header): Reading<void> {
  const { input, writer } = context;
  if (recipient !== undefined) {
    writer.startCall(recipient.replace(/^functions\./, ''));
    yield* readSpace(input);
    const isObject = (yield* peek(input)) === '{' && (yield* passArguments(context));
    yield* readUntil(input, harmonyMarks, (text) => {
      if (!isObject) writer.callArguments(text);
    });
    writer.endCall(isObject);
    return;
  }
  const isReasoning = channel === 'analysis';
  yield* readUntil(input, harmonyMarks, (text) => (isReasoning ? writer.reasoning(text) : writer.text(text)));
  if (!input.isDone) writer.endText();
}

const recipientMark = '>>>';
const everyone = 'all';

/** Functionary 3.2: `all\n...>>>name\n{...}`; the answer begins with a recipient. */
export function* readRecipients(context: CallContext): Reading<void> {
  const { input, writer, tools } = context;
  for (;;) {
    yield* starts(input, recipientMark);
    input.keep();
    const recipient = (yield* captureUntil(input, ['\n'], maxHeaderLength))?.trim();
    if (recipient === everyone || (recipient !== undefined && tools.has(recipient))) {
      input.release();
      yield* starts(input, '\n');
    } else input.restore();
    if (recipient !== undefined && tools.has(recipient)) {
      writer.startCall(recipient);
      writer.endCall(yield* passArguments(context));
      yield* readSpace(input);
    }
    if ((yield* readUntil(input, [recipientMark], (text) => writer.text(text))) === undefined) return;
    writer.endText();
  }
}
