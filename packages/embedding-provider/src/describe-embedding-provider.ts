/** The conformance suite of embedding providers, as vitest tests. */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EmbeddingProvider, TextKind } from './provider.js';

export interface DescribeEmbeddingProviderOptions {
  readonly name: string;
  /** Creates a provider, once for the suite. */
  create(): EmbeddingProvider | Promise<EmbeddingProvider>;
  /** Disposes of the provider. */
  dispose?(): void | Promise<void>;
  /**
   * Tolerance between values of the same text embedded alone and in a batch, for providers whose summation order
   * depends on the batch. Default 0.
   */
  readonly tolerance?: number;
  /** Whether texts beyond `maxTokens` are truncated or embedded in parts instead of rejected. Default false. */
  readonly takesLongTexts?: boolean;
}

const texts = [
  'The storm broke over the old harbour.',
  'Beat two eggs with the sugar.',
  'a',
  'Why?',
  'The storm broke over the old harbour, and the boats came in one after the other until the light was gone.',
];
const strange = [
  'caf\u00e9 na\u00efve',
  '\u65e5\u672c\u8a9e',
  '\u{1f30a}\u{1f9ed}',
  'a\u0000b',
  '\ud800',
  '\n\t x',
  '<|im_end|>',
];

type SameVectors = (actual: Float32Array | undefined, expected: Float32Array | undefined) => void;

/** Registers the suite. */
export function describeEmbeddingProvider(options: DescribeEmbeddingProviderOptions): void {
  const { name, tolerance = 0, takesLongTexts = false } = options;
  const expectSame: SameVectors = (actual, expected) => {
    expect(actual).toHaveLength(expected?.length ?? 0);
    const distances = Array.from(actual ?? [], (value, i) => Math.abs(value - (expected?.[i] ?? Number.NaN)));
    expect(Math.max(...distances)).toBeLessThanOrEqual(tolerance);
  };
  describe(`embedding provider ${name}`, () => {
    let created: EmbeddingProvider;
    const provider = (): EmbeddingProvider => created;
    beforeAll(async () => {
      created = await options.create();
    });
    afterAll(async () => options.dispose?.());

    testVectors(provider, expectSame);
    testTexts(provider, expectSame, takesLongTexts);
    testCalls(provider, expectSame);
  });
}

function expectVector(provider: EmbeddingProvider, vector: Float32Array | undefined): void {
  expect(vector).toBeInstanceOf(Float32Array);
  expect(vector).toHaveLength(provider.dimensions);
  expect(vector?.every(Number.isFinite)).toBe(true);
  if (!provider.isNormalized || vector === undefined) return;
  const squares = vector.reduce((sum, value) => sum + value * value, 0);
  // Normalized in f32: n roundings of the sum, halved by the square root, and one each for square root and
  // quotient.
  expect(Math.abs(Math.sqrt(squares) - 1)).toBeLessThanOrEqual((provider.dimensions / 2 + 2) * 2 ** -24);
}

/** Vectors: their shape, and what they depend on. */
function testVectors(provider: () => EmbeddingProvider, expectSame: SameVectors): void {
  it('has a name, dimensions and a context length', () => {
    expect(provider().name).not.toBe('');
    expect(Number.isSafeInteger(provider().dimensions) && provider().dimensions > 0).toBe(true);
    expect(Number.isSafeInteger(provider().maxTokens) && provider().maxTokens > 0).toBe(true);
  });

  it('returns vectors of its dimensions, normalized if `isNormalized`', async () => {
    for (const vector of await provider().embedBatch(texts)) expectVector(provider(), vector);
  });

  it('returns the same vector for the same text, alone, in a batch and in any order', async () => {
    const together = await provider().embedBatch(texts);
    const reversed = await provider().embedBatch(texts.toReversed());
    expect(together).toHaveLength(texts.length);
    for (const [i, text] of texts.entries()) {
      expectSame(await provider().embed(text), together[i]);
      expectSame(reversed[texts.length - 1 - i], together[i]);
    }
  });

  it('returns different vectors for different texts', async () => {
    const vectors = await provider().embedBatch(texts);
    expect(new Set(vectors.map((vector) => vector.join())).size).toBe(texts.length);
  });

  it('returns vectors that the caller owns: writing to one changes no later one', async () => {
    const first = await provider().embed('a');
    const copy = first.slice();
    first.fill(7);
    expectSame(await provider().embed('a'), copy);
  });
}

/** Texts of every kind, which are embedded or rejected with a typed error. */
function testTexts(provider: () => EmbeddingProvider, expectSame: SameVectors, takesLongTexts: boolean): void {
  it('accepts an empty batch and duplicate texts', async () => {
    expect(await provider().embedBatch([])).toEqual([]);
    const [one, two] = await provider().embedBatch(['a', 'a']);
    expectSame(two, one);
    expect(one?.buffer === two?.buffer && one?.byteOffset === two?.byteOffset).toBe(false);
  });

  it.each(strange.map((text) => [JSON.stringify(text), text] as const))('takes %s', async (_name, text) => {
    expectVector(provider(), await provider().embed(text));
  });

  it('embeds an empty text or rejects it with an ArgumentError', async () => {
    const outcome = await provider()
      .embed('')
      .catch((error: unknown) => error);
    if (ArgumentError.isInstance(outcome))
      await expect(provider().embedBatch(['a', ''])).rejects.toSatisfy(ArgumentError.isInstance);
    else expectVector(provider(), outcome as Float32Array);
  });

  it('never truncates a text silently', async () => {
    const long = 'word '.repeat(provider().maxTokens + 1);
    if (takesLongTexts) expectVector(provider(), await provider().embed(long));
    else await expect(provider().embedBatch(['a', long])).rejects.toSatisfy(CapacityError.isInstance);
    expectVector(provider(), await provider().embed('a'));
  });
}

/** Calls: kinds, signals, and several at the same time. */
function testCalls(provider: () => EmbeddingProvider, expectSame: SameVectors): void {
  it('embeds queries and documents, and nothing else', async () => {
    expectVector(provider(), await provider().embed('a', { kind: 'query' }));
    expectSame(await provider().embed('a', { kind: 'document' }), await provider().embed('a'));
    const unknown = 'picture' as TextKind;
    await expect(provider().embed('a', { kind: unknown })).rejects.toSatisfy(ArgumentError.isInstance);
  });

  it('rejects with the reason of its signal and works afterwards', async () => {
    const reason = new Error('enough');
    await expect(provider().embed('a', { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await expect(provider().embedBatch([], { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const call = provider().embedBatch(
      Array.from({ length: 200 }, (_, i) => `${texts[0]} ${i}`),
      {
        signal: controller.signal,
      },
    );
    controller.abort(reason);
    await expect(call).rejects.toBe(reason);
    expectVector(provider(), await provider().embed('a'));
  });

  it('supports concurrent calls', async () => {
    const expected = await provider().embedBatch(texts);
    const actual = await Promise.all(texts.map((text) => provider().embed(text)));
    for (const [i, vector] of actual.entries()) expectSame(vector, expected[i]);
  });
}
