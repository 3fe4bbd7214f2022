/**
 * Shows a reply. A terminal gets a label, colors of Markdown, and reasoning; a pipe or a file gets the text of the reply
 * as it is.
 */
import { printable } from '../errors/printable.js';
import { plain, type Paint } from './colors.js';
import type { MarkdownColors } from './markdown-colors.js';
import type { Output } from './output.js';

export interface ReplyViewOptions {
  readonly out: Output;
  /** Who replies, on a terminal. */
  readonly label: string;
  readonly paint: Paint;
  /** Colors a text; undefined for replies that are not Markdown. */
  readonly createMarkdown: (() => MarkdownColors) | undefined;
}

type Part = 'nothing' | 'label' | 'reasoning' | 'text';

export class ReplyView {
  readonly #options: ReplyViewOptions;
  #part: Part = 'nothing';
  #markdown: MarkdownColors | undefined;
  #isLineOpen = true;

  constructor(options: ReplyViewOptions) {
    this.#options = options;
  }

  async write(piece: string): Promise<void> {
    const { out, createMarkdown } = this.#options;
    if (!out.isTerminal) return this.#show(piece);
    await this.#begin('text');
    this.#markdown ??= createMarkdown?.();
    await this.#show(this.#markdown?.push(printable(piece)) ?? printable(piece));
  }

  async writeReasoning(piece: string): Promise<void> {
    const { out, paint } = this.#options;
    if (!out.isTerminal) return;
    await this.#begin('reasoning');
    await this.#show(paint('dim', printable(piece)));
  }

  /** Ends the line, even of a reply without text; what follows begins another line. */
  async end(): Promise<void> {
    await this.#show(this.#markdown?.end() ?? '');
    this.#markdown = undefined;
    if (this.#isLineOpen) await this.#show('\n');
    this.#part = 'nothing';
  }

  /** The same, except that a reply without text has no line. */
  async endText(): Promise<void> {
    if (this.#part === 'nothing' && this.#isLineOpen) return;
    await this.end();
  }

  async #begin(part: 'reasoning' | 'text'): Promise<void> {
    const { label, paint } = this.#options;
    if (this.#part === part) return;
    const hasColors = paint !== plain;
    if (this.#part === 'nothing') await this.#show(paint(['bold', 'green'], `${printable(label)}> `));
    if (part === 'reasoning' && !hasColors) await this.#show('(reasoning)\n');
    if (part === 'text' && this.#part === 'reasoning') await this.#show(hasColors ? '\n\n' : '\n(answer)\n');
    this.#part = part;
  }

  async #show(text: string): Promise<void> {
    if (text === '') return;
    this.#part = this.#part === 'nothing' ? 'label' : this.#part;
    this.#isLineOpen = !text.endsWith('\n');
    await this.#options.out.writeStyled(text);
  }
}
