/** Splits a streamed answer into text, reasoning and calls. */
import type { ReasoningFormat } from '../formats/reasoning-formats.js';
import type { ToolFormatRow } from '../formats/tool-format.js';
import type { ChatTool } from '../template.js';
import { AnswerWriter } from './answer-writer.js';
import type { CallContext } from './call-context.js';
import { readHarmony, readRecipients } from './channels.js';
import type { ChatPart, ChatReader } from './chat-part.js';
import { readJsonCalls } from './json-calls.js';
import { readLiteralCalls } from './literal-calls.js';
import { readNamedCalls } from './named-calls.js';
import { readTaggedCalls } from './tagged-calls.js';
import { readSpace, readUntil, starts, TextInput, type Reading } from './text-input.js';

/** How an answer is written. */
export interface AnswerFormat {
  /** How the model writes calls; used when there are tools. */
  readonly tools: ToolFormatRow;
  /** Undefined: the answer has no reasoning. */
  readonly reasoning: ReasoningFormat | undefined;
  /** The prompt has opened the reasoning. */
  readonly startsInReasoning: boolean;
}

/** @param tools those that the model may call; without any, what looks like a call is text */
export function createAnswerReader(
  format: AnswerFormat,
  tools: readonly ChatTool[],
  createId: () => string,
): ChatReader {
  if (format.reasoning === undefined && isPlain(format.tools, tools)) {
    return { push: (text) => (text === '' ? [] : [{ type: 'text', text }]), end: () => [] };
  }
  return new AnswerReader(format, tools, createId);
}

/** The whole answer is text: there is nothing to parse. */
function isPlain({ ignored, shape }: ToolFormatRow, tools: readonly ChatTool[]): boolean {
  return tools.length === 0 && ignored === undefined && shape.kind !== 'harmony' && shape.kind !== 'recipients';
}

/** Feeds a parser, which pauses for more text. */
class AnswerReader implements ChatReader {
  readonly #input = new TextInput();
  readonly #writer: AnswerWriter;
  readonly #reading: Reading<void>;

  constructor(format: AnswerFormat, tools: readonly ChatTool[], createId: () => string) {
    this.#writer = new AnswerWriter(createId);
    this.#reading = new AnswerParser(format, tools, this.#input, this.#writer).read();
  }

  push(text: string): readonly ChatPart[] {
    if (text === '') return [];
    this.#input.push(text);
    this.#reading.next();
    return this.#writer.takeParts();
  }

  end(): readonly ChatPart[] {
    this.#input.end();
    this.#reading.next();
    this.#writer.end();
    return this.#writer.takeParts();
  }
}

const noOpens: readonly string[] = [];

class AnswerParser {
  readonly #format: AnswerFormat;
  readonly #input: TextInput;
  readonly #writer: AnswerWriter;
  readonly #context: CallContext;
  /** Texts that begin calls. */
  readonly #opens: readonly string[];
  /** Texts that begin calls where the answer begins. */
  readonly #startOpens: readonly string[];
  readonly #ignored: readonly string[];

  constructor(format: AnswerFormat, tools: readonly ChatTool[], input: TextInput, writer: AnswerWriter) {
    this.#format = format;
    this.#input = input;
    this.#writer = writer;
    const row = format.tools;
    const byName = new Map(tools.map((tool) => [tool.name, tool]));
    this.#context = { input, writer, format: row, tools: byName };
    const opens = tools.length === 0 ? noOpens : row.opens;
    this.#opens = opens.flatMap((open) =>
      open.includes('{name}') ? tools.map(({ name }) => open.replace('{name}', name)) : [open],
    );
    this.#startOpens = tools.length === 0 ? noOpens : (row.startOpens ?? noOpens);
    this.#ignored = [...(row.ignored ?? []), ...(format.reasoning?.ignored ?? [])];
  }

  *read(): Reading<void> {
    const { reasoning, startsInReasoning } = this.#format;
    if (reasoning !== undefined && startsInReasoning) yield* this.#readReasoning(reasoning);
    const { kind } = this.#context.format.shape;
    if (kind === 'harmony') yield* readHarmony(this.#context);
    else if (kind === 'recipients') yield* readRecipients(this.#context);
    else yield* this.#readParts();
  }

  *#readParts(): Reading<void> {
    yield* this.#readStart();
    const { reasoning } = this.#format;
    const open = reasoning?.isAnywhere === true ? [reasoning.open] : noOpens;
    const marks = [...new Set([...this.#opens, ...open, ...this.#ignored])];
    for (;;) {
      const mark = yield* readUntil(this.#input, marks, (text) => this.#writer.text(text));
      if (mark === undefined) return;
      if (this.#opens.includes(mark)) yield* this.#readCalls(mark);
      else if (reasoning !== undefined && open.includes(mark)) yield* this.#readOpened(reasoning);
      else yield* starts(this.#input, mark);
    }
  }

  /** Reads what may begin only at the start of the answer. */
  *#readStart(): Reading<void> {
    const { reasoning } = this.#format;
    const space = yield* readSpace(this.#input);
    if (reasoning !== undefined && reasoning.isAnywhere !== true && (yield* this.#follows(reasoning.open))) {
      yield* this.#readOpened(reasoning);
      yield* readSpace(this.#input);
    } else this.#writer.text(space);
    for (const open of this.#startOpens) {
      if (!(yield* this.#follows(open))) continue;
      yield* this.#readCalls('');
      return;
    }
  }

  *#follows(text: string): Reading<boolean> {
    this.#input.keep();
    const follows = yield* starts(this.#input, text);
    this.#input.restore();
    return follows;
  }

  /** Reads a block of reasoning, whose opening mark comes next. */
  *#readOpened(reasoning: ReasoningFormat): Reading<void> {
    yield* starts(this.#input, reasoning.open);
    if (reasoning.label === undefined || (yield* starts(this.#input, reasoning.label))) {
      yield* this.#readReasoning(reasoning);
    }
  }

  *#readReasoning({ close, endsAtCalls }: ReasoningFormat): Reading<void> {
    const calls = endsAtCalls === true ? [...this.#opens, ...(this.#context.format.ignored ?? [])] : noOpens;
    const mark = yield* readUntil(this.#input, [close, ...calls], (text) => this.#writer.reasoning(text));
    if (mark === close) yield* starts(this.#input, close);
    this.#writer.endText();
  }

  /**
   * Reads a section of calls, or text that only looks like one. @param open its mark, which follows; empty if it has
   * none
   */
  *#readCalls(open: string): Reading<void> {
    const context = this.#context;
    const input = this.#input;
    input.keep();
    if (open !== '' && !(context.format.keepsOpen === true && open.startsWith('['))) yield* starts(input, open);
    const hasCalls = yield* readSection(context);
    if (hasCalls) input.release();
    else {
      input.restore();
      // treat the mark as text, so that it is not found again
      const length = Math.max(open.length, 1);
      while (input.rest.length < length && !input.hasEnded) yield;
      this.#writer.text(input.take(length));
    }
  }
}

function* readSection(context: CallContext): Reading<boolean> {
  const { shape, closes } = context.format;
  const [close = ''] = closes;
  switch (shape.kind) {
    case 'json':
      return yield* readJsonCalls(context, closes);
    case 'named':
      return yield* readNamedCalls(context, shape);
    case 'tagged':
      return yield* readTaggedCalls(context, shape, close);
    case 'literal':
      return yield* readLiteralCalls(context, shape, close);
    default:
      return false;
  }
}
