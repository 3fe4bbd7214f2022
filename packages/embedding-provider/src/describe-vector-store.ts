/** The conformance suite of vector stores, as vitest tests on a real database. */
import { ArgumentError, ShapeError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { VectorRecord, VectorStore } from './vector-store.js';

export interface OpenVectorStore {
  readonly store: VectorStore;
  /** Closes the database. Records are persistent. */
  close?(): void | Promise<void>;
}

export interface DescribeVectorStoreOptions {
  readonly name: string;
  /** Opens the database, creating it if necessary. The suite reopens it to check persistence. */
  open(dimensions: number): OpenVectorStore | Promise<OpenVectorStore>;
  /** Whether search is exact, comparing with all vectors. Default false. */
  readonly isExact?: boolean;
}

const dimensions = 16;
/** Dot products, norms and quotient in f32: `n + 2` roundings each, of values up to 1. */
const tolerance = 3 * (dimensions + 2) * 2 ** -24;

/** A distinct direction for each number: harmonics of one angle, in an order that favors no index. */
function vectorOf(number: number): Float32Array {
  const vector = Float32Array.from({ length: dimensions }, (_, i) => Math.sin((number + 1) * (i + 1) * 0.7391));
  const norm = Math.hypot(...vector);
  return vector.map((value) => value / norm);
}

function recordOf(number: number): VectorRecord {
  return {
    id: `text-${number}`,
    vector: vectorOf(number),
    text: `The text ${number}: "quotes", \u00e9, \u{1f30a}, 'n'; --`,
  };
}

function cosine(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0);
}

const numbers = Array.from({ length: 60 }, (_, i) => i);

/** Registers the suite. */
export function describeVectorStore({ name, open, isExact = false }: DescribeVectorStoreOptions): void {
  describe(`vector store ${name}`, () => {
    let opened: OpenVectorStore;
    const store = (): VectorStore => opened.store;
    beforeAll(async () => {
      opened = await open(dimensions);
    });
    afterAll(async () => opened.close?.());

    testSearch(store, isExact);
    testChanges(store);

    it('keeps all records when it is closed and reopened', async () => {
      const before = await store().search(vectorOf(11), 1);
      await opened.close?.();
      opened = await open(dimensions);
      expect(await store().count()).toBe(numbers.length);
      expect(await store().search(vectorOf(11), 1)).toEqual(before);
      await store().insert([recordOf(400)]);
      expect((await store().search(vectorOf(400), 1))[0]?.id).toBe('text-400');
    });
  });
}

/** Inserts the records that the other tests find. */
function testSearch(store: () => VectorStore, isExact: boolean): void {
  it('is initially empty and finds nothing', async () => {
    expect(store().dimensions).toBe(dimensions);
    expect(await store().count()).toBe(0);
    expect(await store().search(vectorOf(0), 3)).toEqual([]);
  });

  it('finds what was inserted', async () => {
    await store().insert([]);
    await store().insert(numbers.slice(0, 40).map(recordOf));
    await store().insert(numbers.slice(40).map(recordOf));
    expect(await store().count()).toBe(numbers.length);
    for (const number of [0, 39, 40, 59]) {
      const [match] = await store().search(vectorOf(number), 3);
      expect(match).toMatchObject({ id: `text-${number}`, text: recordOf(number).text });
    }
  });

  it('orders by similarity, which is the cosine', async () => {
    const query = vectorOf(100);
    const matches = await store().search(query, 10);
    expect(matches).toHaveLength(10);
    const similarities = matches.map(({ similarity }) => similarity);
    expect(similarities).toEqual(similarities.toSorted((a, b) => b - a));
    for (const { id, similarity } of matches) {
      const expected = cosine(query, vectorOf(Number(id.slice('text-'.length))));
      expect(Math.abs(similarity - expected)).toBeLessThanOrEqual(tolerance);
    }
    if (!isExact) return;
    const best = numbers.map((number) => cosine(query, vectorOf(number))).toSorted((a, b) => b - a);
    similarities.forEach((value, i) => expect(Math.abs(value - (best[i] ?? 0))).toBeLessThanOrEqual(tolerance));
  });

  it('returns no more records than there are', async () => {
    expect((await store().search(vectorOf(0), 1000)).length).toBeLessThanOrEqual(numbers.length);
  });
}

/** Leaves the records as they were. */
function testChanges(store: () => VectorStore): void {
  it('replaces a record of a known id', async () => {
    await store().insert([{ ...recordOf(5), vector: vectorOf(200), text: 'another' }]);
    expect(await store().count()).toBe(numbers.length);
    const [match] = await store().search(vectorOf(200), 1);
    expect(match).toMatchObject({ id: 'text-5', text: 'another' });
    await store().insert([recordOf(5)]);
  });

  it('deletes', async () => {
    expect(await store().delete('text-7')).toBe(true);
    expect(await store().delete('text-7')).toBe(false);
    expect(await store().count()).toBe(numbers.length - 1);
    const ids = (await store().search(vectorOf(7), 5)).map(({ id }) => id);
    expect(ids).not.toContain('text-7');
    await store().insert([recordOf(7)]);
  });

  it('rejects invalid records and stores none of that call', async () => {
    const short = { id: 'short', vector: new Float32Array(3), text: '' };
    await expect(store().insert([recordOf(300), short])).rejects.toSatisfy(ShapeError.isInstance);
    const broken = { id: 'broken', vector: vectorOf(0).fill(Number.NaN, 2, 3), text: '' };
    await expect(store().insert([broken])).rejects.toSatisfy(ArgumentError.isInstance);
    await expect(store().search(new Float32Array(dimensions + 1), 1)).rejects.toSatisfy(ShapeError.isInstance);
    await expect(store().search(vectorOf(0), 0)).rejects.toSatisfy(ArgumentError.isInstance);
    expect(await store().count()).toBe(numbers.length);
  });
}
