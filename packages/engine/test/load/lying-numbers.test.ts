/** Replaces every number of every architecture's settings by extremes: the model is described or rejected at once. */
import { fileURLToPath } from 'node:url';
import { architectures, describeEmbedder, describeModel, Fields, type ModelFile } from '@winnow/models';
import { WinnowError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { openPath } from '../../src/host/open-path.node.js';
import { archPath, encoderNames, goldenNames, imageNames } from '../support/golden-files.js';

const extremes = [0, 1, 2, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 53 - 1, 2 ** 64, -1, 0.5, 1e300, Number.NaN];
/** Larger than the description of any of these models, which have less than a hundred tensors. */
const maxMemoryBytes = 64 * 2 ** 20;

/** Objects and typed arrays. */
function usedBytes(): number {
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

type Settings = Readonly<Record<string, unknown>>;

/** The settings with one number replaced, for each number in them. */
function* replaced(settings: Settings, value: number): Generator<readonly [string, Settings]> {
  for (const [name, old] of Object.entries(settings)) {
    if (typeof old === 'number' || typeof old === 'bigint') yield [name, { ...settings, [name]: value }];
    else if (isNumbers(old)) yield [name, { ...settings, [name]: Array.from(old, () => value) }];
    else if (typeof old === 'object' && old !== null && !Array.isArray(old)) {
      for (const [inner, changed] of replaced(old as Settings, value)) {
        yield [`${name}.${inner}`, { ...settings, [name]: changed }];
      }
    }
  }
}

function isNumbers(value: unknown): value is ArrayLike<number> {
  return ArrayBuffer.isView(value) || (Array.isArray(value) && typeof value[0] === 'number' && value.length < 100);
}

async function sweep(
  file: ModelFile,
  settings: Settings,
  describeFile: (changed: ModelFile) => Promise<unknown> = describeEmbedder,
): Promise<void> {
  for (const value of extremes) {
    for (const [name, changed] of replaced(settings, value)) {
      if (name.startsWith('tokenizer.')) continue;
      const before = usedBytes();
      try {
        await describeFile({ ...file, fields: Fields.ofJson(file.fields.source, changed) });
      } catch (error) {
        if (!WinnowError.isInstance(error)) throw new Error(`${name} = ${value}`, { cause: error });
      }
      expect([name, value, usedBytes() - before < maxMemoryBytes]).toEqual([name, value, true]);
    }
  }
}

async function sweepPath(path: string): Promise<void> {
  const opened = await openPath(path, {});
  const file = await opened.openFile();
  await describeEmbedder(file);
  await sweep(file, opened.metadata);
  await opened.close();
}

const names = [...Object.values(goldenNames), ...Object.values(encoderNames)].flat();

test('every architecture has a model whose numbers are replaced', () => {
  const swept = { ...goldenNames, ...encoderNames, ...imageNames };
  expect(architectures.map(({ name }) => name).filter((name) => (swept[name] ?? []).length === 0)).toEqual([]);
});

describe.each(names)('%s', (name) => {
  for (const [format, path] of [
    ['GGUF', archPath(name, 'model.gguf')],
    ['config.json', archPath(name, 'hf')],
  ] as const) {
    const missing = path === undefined ? ' (needs ../shared/data/goldens)' : '';
    test.skipIf(path === undefined)(`${format}${missing}`, async () => {
      await sweepPath(path as string);
    });
  }
});

test.each(Object.values(imageNames).flat())('%s: config.json', async (name) => {
  await sweepPath(fileURLToPath(new URL(`../fixtures/images/${name}`, import.meta.url)));
});

/** One of each projector. */
const encoders = ['gemma3', 'smolvlm', 'llava', 'llava-onevision', 'qwen2vl', 'qwen25vl', 'qwen3vl'];

test.each(encoders)('%s: mmproj file', async (name) => {
  const openFixture = (path: string): ReturnType<typeof openPath> =>
    openPath(fileURLToPath(new URL(`../fixtures/images/${name}-gguf/${path}`, import.meta.url)), {});
  const [model, encoder] = [await openFixture('model.gguf'), await openFixture('mmproj-model-f16.gguf')];
  const [text, images] = [await model.openFile(), await encoder.openFile()];
  const describeBoth = (file: ModelFile): Promise<unknown> => describeModel(text, { file, idOf: () => 1 });
  await describeBoth(images);
  await sweep(images, encoder.metadata, describeBoth);
  await model.close();
  await encoder.close();
});
