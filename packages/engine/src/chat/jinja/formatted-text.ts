/** Texts with places for values: `'%s' % value` and `'{}'.format(value)`. */
import type { Value } from './library.js';
import { pythonText } from './texts.js';

export function charactersOf(text: string): readonly string[] {
  return Array.from(text);
}

export class FormattedText {
  readonly #template: string;

  constructor(template: string) {
    this.#template = template;
  }

  /** @throws {Error} for a format that chat templates do not use, and too few or too many values */
  percent(values: Value): string {
    const all = values.type === 'TupleValue' ? (values.value as readonly Value[]) : [values];
    let used = 0;
    const text = this.#template.replaceAll(/%(.)/g, (_all, kind: string) => {
      if (kind === '%') return '%';
      const value = all[used++];
      if (value === undefined || !'sdi'.includes(kind)) throw new Error(`unsupported format %${kind}`);
      return kind === 's' ? pythonText(value) : String(Math.trunc(Number(value.value)));
    });
    if (used < all.length) throw new Error('not all values were used in the format');
    return text;
  }

  /** @throws {Error} for places without a value, and formats of numbers */
  format(positional: readonly Value[], named: ReadonlyMap<string, Value>): string {
    let next = 0;
    return this.#template.replaceAll(/\{\{|\}\}|\{([^{}]*)\}/g, (found, name: string | undefined) => {
      if (name === undefined) return found.charAt(0);
      const value = name === '' ? positional[next++] : (named.get(name) ?? positional[Number(name)]);
      if (value === undefined) throw new Error(`no value for {${name}}`);
      return pythonText(value);
    });
  }
}
