/** Readers of `src/__fixtures__`. */
import { readFileSync } from 'node:fs';

export function readFixture<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`../src/__fixtures__/${name}`, import.meta.url), 'utf8')) as T;
}

export interface TokenizedText {
  readonly text: string;
  readonly tokens: readonly number[];
}

export interface Architectures {
  readonly vocabularies: readonly Record<string, unknown>[];
  readonly architectures: readonly {
    readonly name: string;
    readonly metadata: Record<string, unknown>;
    readonly vocabulary: number;
    readonly tokenize: readonly TokenizedText[];
    readonly embedded: readonly TokenizedText[];
  }[];
}

/** GGUF metadata of an architecture golden. */
export function architectureMetadata(fixture: Architectures, name: string): Record<string, unknown> {
  const found = fixture.architectures.find((architecture) => architecture.name === name);
  if (found === undefined) throw new Error(`no architecture ${name}`);
  return { ...fixture.vocabularies[found.vocabulary], ...found.metadata };
}

/** The hash of each text in a string of concatenated hashes. */
export function hashAt(hashes: string, index: number): string {
  return hashes.slice(8 * index, 8 * index + 8);
}

export const demoTokenizer = (): { model: { vocab: Record<string, number> } } => readFixture('demo-tokenizer.json');
