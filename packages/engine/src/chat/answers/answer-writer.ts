/** Collects the parts of an answer while it is read. */
import { isRecord, jsonDepth, maxJsonDepth } from '@winnow/tensor';
import type { ChatPart } from './chat-part.js';
import { parsedJson } from './json-values.js';

/** Drops the white space around reasoning and between text, reasoning and calls; keeps that inside each of them. */
export class AnswerWriter {
  readonly #createId: () => string;
  #parts: ChatPart[] = [];
  /** White space that belongs to the text only if more text follows. */
  #space = '';
  #kind: 'text' | 'reasoning' | undefined;
  /** White space before the next text is dropped. */
  #isAfterOther = false;
  #call: { readonly id: string; readonly name: string; text: string } | undefined;

  constructor(createId: () => string) {
    this.#createId = createId;
  }

  /** The parts since the last call of this method. */
  takeParts(): readonly ChatPart[] {
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }

  get isInCall(): boolean {
    return this.#call !== undefined;
  }

  text(piece: string): void {
    this.#write('text', piece);
  }

  reasoning(piece: string): void {
    this.#write('reasoning', piece);
  }

  /** Something else follows, or a block of reasoning has ended. */
  endText(): void {
    this.#space = '';
    this.#kind = undefined;
    this.#isAfterOther = true;
  }

  /** The answer has ended. */
  end(): void {
    if (this.#kind === 'text' && this.#space !== '') this.#parts.push({ type: 'text', text: this.#space });
    this.#space = '';
  }

  startCall(name: string, id: string = this.#createId()): void {
    this.endText();
    this.#call = { id, name, text: '' };
    this.#parts.push({ type: 'tool-call-start', id, name });
  }

  /** A piece of the arguments, which is JSON text. */
  callArguments(piece: string): void {
    if (this.#call === undefined || piece === '') return;
    this.#call.text += piece;
    this.#parts.push({ type: 'tool-call-delta', id: this.#call.id, arguments: piece });
  }

  /** @param isWhole whether the answer has all of the call; its arguments may still be invalid */
  endCall(isWhole: boolean): void {
    if (this.#call === undefined) return;
    const { id, name, text } = this.#call;
    this.#call = undefined;
    this.#parts.push({ type: 'tool-call', id, name, arguments: text, isComplete: isWhole && isObject(text) });
  }

  #write(kind: 'text' | 'reasoning', piece: string): void {
    if (kind !== this.#kind) {
      if (this.#kind !== undefined) this.endText();
      if (kind === 'reasoning') this.#isAfterOther = true;
      this.#kind = kind;
    }
    const all = this.#space + piece;
    const shown = this.#isAfterOther ? all.trimStart() : all;
    const text = shown.trimEnd();
    this.#space = shown.slice(text.length);
    if (text === '') return;
    this.#isAfterOther = false;
    this.#parts.push({ type: kind, text });
  }
}

function isObject(text: string): boolean {
  return jsonDepth(text) <= maxJsonDepth && isRecord(parsedJson(text));
}
