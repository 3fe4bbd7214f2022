/** The engine's models as providers: the shared suite, and more. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadEmbeddingModel, type EmbeddingModel } from '@winnow/engine';
import { ArgumentError, ReleasedError } from '@winnow/tensor';
import { sharedDataPath } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createEmbeddingProvider } from '../src/index.js';
import { describeEmbeddingProvider } from '../src/testing.js';

const load = (): Promise<EmbeddingModel> =>
  loadEmbeddingModel(demoModelUrl, { pooling: 'mean', context: 64, threads: 1 });

describe.each([
  { name: 'demo model', options: {} },
  { name: 'demo model, not normalized', options: { normalize: false } },
  { name: 'demo model, long texts in parts', options: { overflow: 'chunk-average' } as const },
  { name: 'demo model, long texts cut', options: { overflow: 'truncate' } as const },
  { name: 'demo model, with prompts', options: { prompts: { query: 'query: ', document: 'text: ' } } },
])('$name', ({ name, options }) => {
  let model: EmbeddingModel | undefined;
  describeEmbeddingProvider({
    name,
    create: async () => {
      model = await load();
      return createEmbeddingProvider(model, options);
    },
    dispose: () => model?.dispose(),
    takesLongTexts: 'overflow' in options,
  });
});

let model: EmbeddingModel;
beforeAll(async () => {
  model = await load();
});
afterAll(() => model.dispose());

describe('options', () => {
  test('that are unknown are errors that name the nearest one', async () => {
    const wrong = { prompts: { querry: 'q: ' } } as object;
    expect(() => createEmbeddingProvider(model, wrong)).toThrow('did you mean "prompts.query"?');
    const provider = createEmbeddingProvider(model);
    await expect(provider.embed('a', { kinds: 'query' } as object)).rejects.toThrow('did you mean "kind"?');
  });

  test('vectors equal those of the model', async () => {
    const provider = createEmbeddingProvider(model);
    expect(provider).toMatchObject({
      name: model.name,
      dimensions: model.dimensions,
      maxTokens: 64,
      isNormalized: true,
    });
    expect([await provider.embed('the sea')]).toEqual(await model.embed(['the sea']));
    const plain = createEmbeddingProvider(model, { normalize: false });
    expect([await plain.embed('the sea')]).toEqual(await model.embed(['the sea'], { normalize: false }));
  });

  test('each input kind has its prompt', async () => {
    const provider = createEmbeddingProvider(model, { prompts: { query: 'query: ' } });
    expect([await provider.embed('the sea', { kind: 'query' })]).toEqual(await model.embed(['query: the sea']));
    expect([await provider.embed('the sea')]).toEqual(await model.embed(['the sea']));
  });

  test('prompts of the model are the default', async () => {
    const asked: unknown[] = [];
    const embed: EmbeddingModel['embed'] = async (texts, options) => {
      asked.push([options?.promptName, options?.prompt]);
      return texts.map(() => new Float32Array(model.dimensions));
    };
    const named: EmbeddingModel = { ...model, prompts: { query: 'q: ' }, embed };
    await createEmbeddingProvider(named).embed('a', { kind: 'query' });
    await createEmbeddingProvider(named).embed('a');
    await createEmbeddingProvider(named, { prompts: { query: 'other: ' } }).embed('a', { kind: 'query' });
    expect(asked).toEqual([
      ['query', undefined],
      [undefined, undefined],
      [undefined, 'other: '],
    ]);
  });
});

describe('dimensions and lifetime', () => {
  test('unsupported dimensions are rejected at once', () => {
    expect(() => createEmbeddingProvider(model, { dimensions: 8 })).toThrow(
      new ArgumentError({ argument: 'dimensions', expected: String(model.dimensions), actual: '8' }),
    );
    for (const cuts of ['any', [8, 16]] as const) {
      const cut: EmbeddingModel = { ...model, matryoshkaDimensions: cuts };
      expect(createEmbeddingProvider(cut, { dimensions: 8 }).dimensions).toBe(8);
      for (const dimensions of [0, 1.5, model.dimensions + 1]) {
        expect(() => createEmbeddingProvider(cut, { dimensions })).toThrow(ArgumentError);
      }
    }
  });

  test('vectors are truncated where the model allows it', async () => {
    const cut = await loadEmbeddingModel(demoModelUrl, { pooling: 'mean', context: 16, isMatryoshka: true });
    const provider = createEmbeddingProvider(cut, { dimensions: 8 });
    const vector = await provider.embed('the sea');
    expect(vector).toHaveLength(8);
    expect(Math.abs(Math.hypot(...vector) - 1)).toBeLessThan(2 ** -20);
    await cut.dispose();
  });

  test('disposing the provider does not dispose the model', async () => {
    const other = await load();
    const provider = createEmbeddingProvider(other);
    await provider.embed('a');
    await other.dispose();
    await expect(provider.embed('a')).rejects.toSatisfy(ReleasedError.isInstance);
  });
});

describe('encoders', () => {
  for (const name of ['bert-mean', 'bert-cls', 'nomic-bert', 'modern-bert']) {
    const path = sharedDataPath('data', 'goldens', 'arch', name, 'model.gguf');
    describe.skipIf(path === undefined)(`${name}${path === undefined ? ' (needs ../shared/data/goldens)' : ''}`, () => {
      let model: EmbeddingModel | undefined;
      describeEmbeddingProvider({
        name,
        create: async () => {
          model = await loadEmbeddingModel(path as string, { threads: 1 });
          return createEmbeddingProvider(model);
        },
        dispose: () => model?.dispose(),
      });
    });
  }
});
