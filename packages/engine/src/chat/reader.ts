/** Splits a streamed answer into text and tool calls. */
import { isRecord, jsonDepth, maxJsonDepth } from '@winnow/tensor';
import type { ChatPart, ChatReader } from './chat-part.js';
import { formatFacts, type ToolFormat } from './tool-format.js';

/** @param format undefined: everything is text */
export function createChatReader(format: ToolFormat | undefined, createId: () => string): ChatReader {
  if (format === undefined) {
    return { push: (text) => (text === '' ? [] : [{ type: 'text', text }]), end: () => [] };
  }
  if (format === 'hermes') return new TaggedReader(createId);
  return new TailReader(format, createId);
}

const open = '<tool_call>';
const close = '</tool_call>';

/** Calls between tags, with text around them. Whitespace around a call is dropped. */
class TaggedReader implements ChatReader {
  readonly #createId: () => string;
  #rest = '';
  #isInCall = false;
  /** No text since the last call. */
  #isAfterCall = false;

  constructor(createId: () => string) {
    this.#createId = createId;
  }

  push(text: string): readonly ChatPart[] {
    this.#rest += text;
    return this.#readTags();
  }

  end(): readonly ChatPart[] {
    const parts = this.#readTags();
    const rest = this.#isInCall ? open + this.#rest : this.#rest;
    this.#rest = '';
    return rest === (this.#isInCall ? open : '') ? parts : [...parts, { type: 'text', text: rest }];
  }

  #readTags(): ChatPart[] {
    const parts: ChatPart[] = [];
    for (;;) {
      const tag = this.#isInCall ? close : open;
      const at = this.#rest.indexOf(tag);
      if (at < 0) break;
      const before = this.#rest.slice(0, at);
      this.#rest = this.#rest.slice(at + tag.length);
      parts.push(...(this.#isInCall ? this.#callsOrText(before) : this.#textOf(before.trimEnd())));
      this.#isInCall = !this.#isInCall;
    }
    return this.#isInCall ? parts : [...parts, ...this.#certainText()];
  }

  #callsOrText(body: string): ChatPart[] {
    const calls = callsOf(body, this.#createId);
    if (calls === undefined) return this.#textOf(open + body + close);
    this.#isAfterCall = true;
    return calls;
  }

  /** Whitespace and a possible start of a tag are held back. */
  #certainText(): ChatPart[] {
    if (this.#isAfterCall) this.#rest = this.#rest.trimStart();
    const certain = this.#rest.slice(0, this.#rest.length - heldBack(this.#rest, open));
    this.#rest = this.#rest.slice(certain.length);
    return this.#textOf(certain);
  }

  #textOf(text: string): ChatPart[] {
    const shown = this.#isAfterCall ? text.trimStart() : text;
    if (shown === '') return [];
    this.#isAfterCall = false;
    return [{ type: 'text', text: shown }];
  }
}

/** How many characters at the end may belong to the marker, including whitespace before it. */
function heldBack(text: string, marker: string): number {
  let numHeld = 0;
  for (let length = Math.min(marker.length - 1, text.length); length > 0; length--) {
    if (!text.endsWith(marker.slice(0, length))) continue;
    numHeld = length;
    break;
  }
  const before = text.slice(0, text.length - numHeld);
  return numHeld + before.length - before.trimEnd().length;
}

/** Formats whose calls extend to the end of the answer. */
class TailReader implements ChatReader {
  readonly #format: TailFormat;
  readonly #marker: string;
  readonly #begin: RegExp;
  readonly #createId: () => string;
  #rest = '';
  /** No text yet. */
  #isFirst = true;
  #isInCall = false;

  constructor(format: TailFormat, createId: () => string) {
    this.#format = format;
    this.#marker = format === 'llama' ? pythonTag : '[TOOL_CALLS]';
    this.#begin = new RegExp(formatFacts[format].begin, 'u');
    this.#createId = createId;
  }

  push(text: string): readonly ChatPart[] {
    this.#rest += text;
    if (this.#isInCall) return [];
    const begin = this.#beginOfCall();
    this.#isInCall = begin !== undefined;
    const certain = this.#rest.slice(0, this.#rest.length - heldBack(this.#rest, this.#marker));
    const said = begin === undefined ? certain : this.#rest.slice(0, begin).trimEnd();
    this.#rest = this.#rest.slice(said.length);
    if (said === '') return [];
    this.#isFirst = false;
    return [{ type: 'text', text: said }];
  }

  end(): readonly ChatPart[] {
    if (this.#rest === '') return [];
    const calls = this.#isInCall ? callsOf(withoutMarker(this.#rest, this.#marker), this.#createId) : undefined;
    const parts = calls ?? [{ type: 'text' as const, text: this.#rest }];
    this.#rest = '';
    return parts;
  }

  /** Llama may leave its tag out, but only where an answer begins. */
  #beginOfCall(): number | undefined {
    const needsTag = this.#format === 'llama' && !this.#isFirst;
    const at = needsTag ? this.#rest.indexOf(pythonTag) : this.#rest.search(this.#begin);
    return at < 0 ? undefined : at;
  }
}

type TailFormat = Exclude<ToolFormat, 'hermes'>;

const pythonTag = '<|python_tag|>';

function withoutMarker(text: string, marker: string): string {
  const trimmed = text.trimStart();
  return trimmed.startsWith(marker) ? trimmed.slice(marker.length) : trimmed;
}

/** Undefined when the text is not a call. */
function callsOf(text: string, createId: () => string): ChatPart[] | undefined {
  const found = text.includes('[ARGS]') ? namedCalls(text) : jsonCalls(text);
  if (found === undefined || found.length === 0) return undefined;
  return found.flatMap(({ name, values }): ChatPart[] => {
    const [id, text] = [createId(), JSON.stringify(values)];
    return [
      { type: 'tool-call-start', id, name },
      { type: 'tool-call-delta', id, arguments: text },
      { type: 'tool-call', id, name, arguments: text, isComplete: true },
    ];
  });
}

interface FoundCall {
  readonly name: string;
  readonly values: object;
}

function namedCalls(text: string): FoundCall[] | undefined {
  const calls = text.split('[TOOL_CALLS]').map((part) => {
    const [name = '', ...values] = part.split('[ARGS]');
    const parsed = parse(values.join('[ARGS]'));
    return name.trim() !== '' && isRecord(parsed) ? { name: name.trim(), values: parsed } : undefined;
  });
  return calls.every((call) => call !== undefined) ? calls : undefined;
}

function jsonCalls(text: string): FoundCall[] | undefined {
  const parsed = parse(text);
  const calls = (Array.isArray(parsed) ? parsed : [parsed]).map((call: unknown) => {
    if (!isRecord(call) || typeof call['name'] !== 'string') return undefined;
    const given = call['arguments'] ?? call['parameters'] ?? {};
    const values = typeof given === 'string' ? parse(given) : given;
    return isRecord(values) ? { name: call['name'], values } : undefined;
  });
  return calls.every((call) => call !== undefined) ? calls : undefined;
}

/** Undefined for text that is not JSON, or nested more deeply than what is written again can be. */
function parse(text: string): unknown {
  if (jsonDepth(text) > maxJsonDepth) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
