/**
 * Colors Markdown while it is written. No character is added, left out or moved: marks stay where the model wrote them, so
 * that what is copied from the terminal is Markdown again.
 */
import { CodeColors } from './code-colors.js';
import type { Paint } from './colors.js';

/** What may still become the mark that begins a line. */
const openStart = /^ *(?:#{0,6}|`{0,2}|~{0,2}|[-*+]?|\d{0,9}[.)]?)$/;
const fenceLine = /^ {0,3}(`{3,}|~{3,})(.*)$/s;
const heading = /^ {0,3}#{1,6}\s/;
const listMark = /^ *(?:[-*+]|\d{1,9}[.)])\s/;
const quoteMark = /^ {0,3}(?:> ?)+/;

/** A run of marks, or a text without any. */
const inlinePieces = /`+|\*+|_+|\\.|[^`*_\\]+|\\/gsu;

interface Fence {
  readonly mark: string;
  readonly colors: CodeColors;
}

/** Marks that are open, in the order in which they were opened. */
interface Inline {
  code: string | undefined;
  bold: string | undefined;
  italic: string | undefined;
}

export class MarkdownColors {
  readonly #paint: Paint;
  /** Text whose style depends on the text after it. */
  #held = '';
  /** The beginning of the line has been written. */
  #isInside = false;
  #isHeading = false;
  #fence: Fence | undefined;
  #inline: Inline = { code: undefined, bold: undefined, italic: undefined };
  /** The character before the next one. */
  #last = '\n';

  constructor(paint: Paint) {
    this.#paint = paint;
  }

  /** Adds a piece of text and returns the part whose style is certain. */
  push(text: string): string {
    this.#held += text;
    let shown = '';
    for (let end = this.#held.indexOf('\n'); end >= 0; end = this.#held.indexOf('\n')) {
      const line = this.#held.slice(0, end);
      this.#held = this.#held.slice(end + 1);
      shown += `${this.#rest(line)}\n`;
      this.#endLine(line);
    }
    return shown + this.#certain();
  }

  /** What was held back. */
  end(): string {
    const shown = this.#rest(this.#held);
    this.#held = '';
    return shown;
  }

  /** As much of an unfinished line as nothing can change any more. */
  #certain(): string {
    const held = this.#held;
    if (this.#fence !== undefined) return '';
    if (!this.#isInside && (openStart.test(held) || fenceLine.test(held) || /^ *>[ >]*$/.test(held))) return '';
    const certain = held.replace(/[`*_\\]+$/, '');
    if (certain === '') return '';
    // the last character decides whether marks after it open or close
    this.#held = held.slice(certain.length);
    return this.#rest(certain);
  }

  /** The rest of a line, or a part of it. */
  #rest(text: string): string {
    if (this.#fence !== undefined) return this.#codeLine(text, this.#fence);
    if (this.#isInside) return this.#inlineText(text);
    const [, mark, info = ''] = fenceLine.exec(text) ?? [];
    if (mark !== undefined && !(mark.startsWith('`') && info.includes('`'))) {
      this.#fence = { mark, colors: new CodeColors(info.trim().split(/\s/, 1)[0] ?? '', this.#paint) };
      return this.#paint('gray', text);
    }
    if (text === '') return '';
    this.#isInside = true;
    this.#isHeading = heading.test(text);
    const start = (quoteMark.exec(text) ?? listMark.exec(text))?.[0] ?? '';
    this.#last = ' ';
    return (start === '' ? '' : this.#paint('cyan', start)) + this.#inlineText(text.slice(start.length));
  }

  #endLine(line: string): void {
    const endsParagraph = this.#isHeading || (line.trim() === '' && !this.#isInside);
    if (endsParagraph) this.#inline = { code: undefined, bold: undefined, italic: undefined };
    this.#isInside = false;
    this.#isHeading = false;
    this.#last = '\n';
  }

  #codeLine(text: string, { mark, colors }: Fence): string {
    const [, close, rest = ''] = fenceLine.exec(text) ?? [];
    if (close === undefined || !close.startsWith(mark) || rest.trim() !== '') return colors.line(text);
    this.#fence = undefined;
    return this.#paint('gray', text);
  }

  #inlineText(text: string): string {
    let shown = '';
    const pieces = text.match(inlinePieces) ?? [];
    pieces.forEach((piece, index) => {
      const next = pieces[index + 1]?.[0] ?? ' ';
      shown += /^[`*_]/.test(piece) ? this.#mark(piece, next) : this.#styled(piece);
      this.#last = piece.at(-1) ?? this.#last;
    });
    return shown;
  }

  /** A run of marks, painted like the text that it surrounds. */
  #mark(run: string, next: string): string {
    const inline = this.#inline;
    if (run.startsWith('`') || inline.code !== undefined) {
      if (inline.code === undefined) inline.code = run;
      else if (inline.code === run) return this.#closed('code', run);
      return this.#styled(run);
    }
    const key = run.length === 1 ? 'italic' : 'bold';
    const isWordBefore = /[\p{L}\p{N}]/u.test(this.#last);
    const isInWord = run.startsWith('_') && isWordBefore && /[\p{L}\p{N}]/u.test(next);
    if (inline[key] === run && !/\s/.test(this.#last) && !isInWord) return this.#closed(key, run);
    if (inline[key] === undefined && run.length <= 2 && !/\s/.test(next) && !(run.startsWith('_') && isWordBefore)) {
      inline[key] = run;
    }
    return this.#styled(run);
  }

  #closed(key: keyof Inline, run: string): string {
    const shown = this.#styled(run);
    this.#inline[key] = undefined;
    return shown;
  }

  #styled(text: string): string {
    const { code, bold, italic } = this.#inline;
    if (text === '') return '';
    if (code !== undefined) return this.#paint('yellow', text);
    const formats = [
      ...(bold !== undefined || this.#isHeading ? (['bold'] as const) : []),
      ...(italic === undefined ? [] : (['italic'] as const)),
      ...(this.#isHeading ? (['cyan'] as const) : []),
    ];
    return formats.length === 0 ? text : this.#paint(formats, text);
  }
}
