/** Colors of code, by the grammars of highlight.js. */
import { common, createLowlight } from 'lowlight';
import type { Paint } from './colors.js';

const lowlight = createLowlight(common);

type Style = Parameters<Paint>[0];

/** By the first class of highlight.js. What is not listed has the color of text. */
const styles: ReadonlyMap<string, Style> = new Map<string, Style>([
  ['hljs-keyword', 'magenta'],
  ['hljs-built_in', 'cyan'],
  ['hljs-type', 'cyan'],
  ['hljs-literal', 'yellow'],
  ['hljs-number', 'yellow'],
  ['hljs-string', 'green'],
  ['hljs-regexp', 'green'],
  ['hljs-symbol', 'yellow'],
  ['hljs-title', 'blue'],
  ['hljs-name', 'blue'],
  ['hljs-section', 'blue'],
  ['hljs-selector-tag', 'blue'],
  ['hljs-attr', 'cyan'],
  ['hljs-attribute', 'cyan'],
  ['hljs-variable', 'cyan'],
  ['hljs-comment', 'gray'],
  ['hljs-quote', 'gray'],
  ['hljs-meta', 'gray'],
  ['hljs-addition', 'green'],
  ['hljs-deletion', 'red'],
]);

interface TreeNode {
  readonly type: string;
  readonly value?: string;
  readonly properties?: { readonly className?: unknown };
  readonly children?: readonly TreeNode[];
}

/** Maximum number of lines that are highlighted together, since each line costs the time of all lines before it. */
const maxLines = 200;
/** Longer lines are not written by hand, and grammars need a long time for them. */
const maxLineLength = 1000;

/** Colors a block of code line by line; a line's color may depend on those before it, as in a comment of several lines. */
export class CodeColors {
  readonly #language: string;
  readonly #paint: Paint;
  #lines: string[] = [];

  constructor(language: string, paint: Paint) {
    this.#language = language.toLowerCase();
    this.#paint = paint;
  }

  line(text: string): string {
    if (!lowlight.registered(this.#language) || text.length > maxLineLength) return text;
    if (this.#lines.length === maxLines) this.#lines = [];
    this.#lines.push(text);
    const tree = lowlight.highlight(this.#language, this.#lines.join('\n')) as TreeNode;
    return this.#painted(tree, undefined).split('\n').at(-1) ?? '';
  }

  /** Each line is painted alone, so that the last one has its colors. */
  #painted({ value, properties, children = [] }: TreeNode, outer: Style | undefined): string {
    const { className } = properties ?? {};
    const style = (Array.isArray(className) ? styles.get(String(className[0])) : undefined) ?? outer;
    if (value === undefined) return children.map((child) => this.#painted(child, style)).join('');
    const lines = value.split('\n');
    return lines.map((line) => (style === undefined || line === '' ? line : this.#paint(style, line))).join('\n');
  }
}
