/** Measurements of a search, stored one by one, so that a search that was interrupted continues where it was. */
import { FormatError, isRecord } from '@winnow/tensor';

/** Where a search stores what it has measured. The caller chooses the location and removes it at the end. */
export interface TuneCheckpoint {
  /** The last saved text; undefined if there is none. */
  load(): Promise<string | undefined>;
  /** Replaces the saved text atomically. */
  save(text: string): Promise<void>;
}

/** What was measured so far, by name. */
export class Measurements {
  readonly #fingerprint: string;
  readonly #checkpoint: TuneCheckpoint | undefined;
  readonly #values: Map<string, unknown>;

  private constructor(fingerprint: string, checkpoint: TuneCheckpoint | undefined, values: Map<string, unknown>) {
    this.#fingerprint = fingerprint;
    this.#checkpoint = checkpoint;
    this.#values = values;
  }

  /**
   * @param fingerprint of everything that measurements depend on: a checkpoint with another one is ignored
   * @param onNotice receives a sentence when it is
   * @throws {FormatError} for a damaged checkpoint
   */
  static async open(
    fingerprint: string,
    checkpoint: TuneCheckpoint | undefined,
    onNotice: (text: string) => void,
  ): Promise<Measurements> {
    const values = new Map<string, unknown>();
    const text = await checkpoint?.load();
    if (text !== undefined) {
      const saved = parse(text);
      if (saved.fingerprint === fingerprint) {
        for (const [name, value] of Object.entries(saved.values)) values.set(name, value);
        onNotice(`continuing after ${values.size} measurements`);
      } else onNotice('belongs to other options, texts or weights: starting over');
    }
    return new Measurements(fingerprint, checkpoint, values);
  }

  /**
   * The stored value, or the measured one, which is stored.
   * @param measure returns plain data that JSON can hold
   */
  async of<T>(name: string, measure: () => Promise<T>): Promise<T> {
    const known = this.#values.get(name);
    if (known !== undefined) return known as T;
    const value = await measure();
    this.#values.set(name, value);
    const content = { fingerprint: this.#fingerprint, values: Object.fromEntries(this.#values) };
    await this.#checkpoint?.save(JSON.stringify(content));
    return value;
  }
}

function parse(text: string): { readonly fingerprint: unknown; readonly values: Record<string, unknown> } {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    content = undefined;
  }
  if (isRecord(content) && isRecord(content['values'])) {
    return { fingerprint: content['fingerprint'], values: content['values'] };
  }
  throw new FormatError({ source: 'checkpoint', field: 'values', message: 'expected measurements (damaged?)' });
}
