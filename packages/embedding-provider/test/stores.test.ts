/** Both databases in a temporary folder: the shared suite, and the path from texts to matches. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { VectorDb } from '@ruvector/core';
import { demoModelUrl } from '@winnow/demo-model';
import { loadEmbeddingModel, type EmbeddingModel } from '@winnow/engine';
import { ArgumentError, FormatError } from '@winnow/tensor';
import { load as loadSqliteVec } from 'sqlite-vec';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  createEmbeddingProvider,
  createRuvectorStore,
  createSqliteVecStore,
  createTextIndex,
  type EmbeddingProvider,
  type RuvectorDatabase,
} from '../src/index.js';
import { describeVectorStore, type OpenVectorStore } from '../src/testing.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-stores-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function openRuvector(file: string, dimensions: number): RuvectorDatabase {
  return new VectorDb({ dimensions, storagePath: join(folder, file), distanceMetric: 'Cosine' });
}

function openSqlite(file: string): DatabaseSync {
  const database = new DatabaseSync(join(folder, file), { allowExtension: true });
  loadSqliteVec(database);
  return database;
}

function sqliteStore(file: string, dimensions: number, table = 'texts'): OpenVectorStore {
  const database = openSqlite(file);
  return { store: createSqliteVecStore(database, { dimensions, table }), close: () => database.close() };
}

// It has no close: reopening the file builds a new graph from its records.
const ruvectorStore = (file: string, dimensions: number): OpenVectorStore => ({
  store: createRuvectorStore(openRuvector(file, dimensions), { dimensions }),
});

describeVectorStore({ name: 'ruvector', open: (dimensions) => ruvectorStore('suite.rvdb', dimensions) });
describeVectorStore({
  name: 'sqlite-vec',
  open: (dimensions) => sqliteStore('suite.sqlite', dimensions),
  isExact: true,
});

const sentences = [
  'The storm broke over the old harbour.',
  'Beat two eggs with the sugar.',
  'The old man looked at the sea and said nothing.',
  'She sold the house and moved to the city.',
  'A letter came from his brother in the morning.',
  'The horse would not cross the bridge.',
  'There was no light in the window.',
];

describe.each([
  ['ruvector', ruvectorStore],
  ['sqlite-vec', sqliteStore],
] as const)('texts in %s', (name, open) => {
  let model: EmbeddingModel;
  let provider: EmbeddingProvider;
  const file = `${name}.texts`;
  beforeAll(async () => {
    model = await loadEmbeddingModel(demoModelUrl, { pooling: 'mean', context: 64, threads: 1 });
    provider = createEmbeddingProvider(model);
  });
  afterAll(() => model.dispose());

  test('a stored text is its own nearest neighbor, also after reopening', async () => {
    let opened = open(file, provider.dimensions);
    let index = createTextIndex({ provider, store: opened.store, batchSize: 3 });
    await index.insert(sentences.map((text, i) => ({ id: String(i), text })));
    for (let round = 0; round < 2; round++) {
      for (const [i, text] of sentences.entries()) {
        const [match] = await index.search(text, { limit: 2 });
        expect(match).toMatchObject({ id: String(i), text });
        // an f32 dot product of n terms, divided by two norms
        expect(Math.abs((match?.similarity ?? 0) - 1)).toBeLessThanOrEqual(3 * (provider.dimensions + 2) * 2 ** -24);
      }
      await opened.close?.();
      opened = open(file, provider.dimensions);
      index = createTextIndex({ provider, store: opened.store });
    }
    await opened.close?.();
  });

  test('an aborted index keeps earlier batches', async () => {
    const { store, close } = open(`${name}.aborted`, provider.dimensions);
    const controller = new AbortController();
    const index = createTextIndex({ provider, store, batchSize: 2 });
    function* texts() {
      for (const [i, text] of sentences.entries()) {
        if (i === 3) controller.abort(new Error('enough'));
        yield { id: String(i), text };
      }
    }
    await expect(index.insert(texts(), { signal: controller.signal })).rejects.toThrow('enough');
    expect(await store.count()).toBe(2);
    await close?.();
  });

  test('a store with other dimensions is rejected', async () => {
    const { store, close } = open(`${name}.small`, 8);
    expect(() => createTextIndex({ provider, store })).toThrow(ArgumentError);
    await close?.();
  });
});

describe('sqlite-vec tables', () => {
  test('a table with other dimensions, another table or no name is rejected', () => {
    const database = openSqlite('tables.sqlite');
    createSqliteVecStore(database, { dimensions: 4 });
    createSqliteVecStore(database, { dimensions: 8, table: 'other' });
    database.exec('CREATE TABLE plain(id)');
    expect(() => createSqliteVecStore(database, { dimensions: 8 })).toThrow('FLOAT[4]');
    expect(() => createSqliteVecStore(database, { dimensions: 4, table: 'plain' })).toThrow(ArgumentError);
    for (const table of ['a b', '1a', '', 'x; DROP TABLE texts']) {
      expect(() => createSqliteVecStore(database, { dimensions: 4, table })).toThrow(ArgumentError);
    }
    expect(() => createSqliteVecStore(database, { dimensions: 0 })).toThrow(ArgumentError);
    database.close();
  });

  test('an insertion that fails half-way leaves nothing, also within a transaction', async () => {
    const database = openSqlite('failing.sqlite');
    const store = createSqliteVecStore(database, { dimensions: 2 });
    const vector = Float32Array.of(1, 0);
    const broken = { id: 'b', vector, text: 7 as unknown as string };
    database.exec('BEGIN');
    await store.insert([{ id: 'before', vector, text: '' }]);
    await expect(store.insert([{ id: 'a', vector, text: '' }, broken])).rejects.toThrow();
    database.exec('COMMIT');
    expect(await store.count()).toBe(1);
    database.close();
  });
});

describe('ruvector files', () => {
  test('records of other programs are rejected if they have no text', async () => {
    const database = openRuvector('foreign.rvdb', 2);
    const vector = Float32Array.of(1, 0);
    const store = createRuvectorStore(database, { dimensions: 2 });
    for (const metadata of ['not json', '{}', '{"text": 7}', 'null']) {
      await database.insertBatch([{ id: 'a', vector, metadata }]);
      await expect(store.search(vector, 1)).rejects.toSatisfy(FormatError.isInstance);
    }
  });
});

test('unknown options are errors that name the nearest one', async () => {
  const dimension = { dimensions: 4, dimension: 4 };
  expect(() => createRuvectorStore({} as RuvectorDatabase, dimension)).toThrow('did you mean "dimensions"?');
  const table = { dimensions: 4, tables: 'b' };
  expect(() => createSqliteVecStore({} as DatabaseSync, table)).toThrow('did you mean "table"?');
  const { store } = sqliteStore('options.sqlite', 4);
  const provider = { name: 'none', dimensions: 4 } as EmbeddingProvider;
  const size = { provider, store, batchsize: 3 };
  expect(() => createTextIndex(size)).toThrow('did you mean "batchSize"?');
  const index = createTextIndex({ provider, store });
  await expect(index.search('a', { limits: 3 } as object)).rejects.toThrow('did you mean "limit"?');
  await expect(index.insert([], { signl: 3 } as object)).rejects.toThrow('did you mean "signal"?');
});
