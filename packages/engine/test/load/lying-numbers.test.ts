/** Replaces every number of every architecture's settings by extremes: the model is described or rejected at once. */
import { fileURLToPath } from 'node:url';
import { getHeapStatistics } from 'node:v8';
import { architectures, describeEmbedder, describeModel, Fields, type ModelFile } from '@winnow/models';
import { WinnowError } from '@winnow/tensor';
import { sampled } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { openPath } from '../../src/host/open-path.node.js';
import { archPath, encoderNames, goldenNames, imageNames } from '../support/golden-files.js';

const extremes = [0, 1, 2, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 53 - 1, 2 ** 64, -1, 0.5, 1e300, Number.NaN];
/** Larger than the description of any of these models, which have less than a hundred tensors. */
const maxMemoryBytes = 64 * 2 ** 20;

/** Objects and typed arrays; `process.memoryUsage` takes longer than a description, since it reads a file of the system. */
function usedBytes(): number {
  const { used_heap_size: heapBytes, external_memory: externalBytes } = getHeapStatistics();
  return heapBytes + externalBytes;
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

/** `npm test` takes every other extreme: one of the two files of a model the odd ones, the other one the even ones. */
async function sweep(
  file: ModelFile,
  settings: Settings,
  turn = 0,
  describeFile: (changed: ModelFile) => Promise<unknown> = describeEmbedder,
): Promise<void> {
  for (const value of sampled(extremes, 2, turn % 2)) {
    for (const [name, changed] of replaced(settings, value)) {
      if (name.startsWith('tokenizer.')) continue;
      const before = usedBytes();
      try {
        await describeFile({ ...file, fields: Fields.ofJson(file.fields.source, changed) });
      } catch (error) {
        if (!WinnowError.isInstance(error)) throw new Error(`${name} = ${value}`, { cause: error });
      }
      // an assertion for each would take as long as the descriptions
      const takenBytes = usedBytes() - before;
      if (takenBytes >= maxMemoryBytes) throw new Error(`${name} = ${value} takes ${takenBytes} bytes`);
    }
  }
}

async function sweepPath(path: string, turn: number): Promise<void> {
  const opened = await openPath(path, {});
  const file = await opened.openFile();
  await describeEmbedder(file);
  await sweep(file, opened.metadata, turn);
  await opened.close();
}

const names = [...Object.values(goldenNames), ...Object.values(encoderNames)].flat();

test('every architecture has a model whose numbers are replaced', () => {
  const swept = { ...goldenNames, ...encoderNames, ...imageNames };
  expect(architectures.map(({ name }) => name).filter((name) => (swept[name] ?? []).length === 0)).toEqual([]);
});

describe.each(names.map((name, index) => ({ name, index })))('$name', ({ name, index }) => {
  for (const [turn, [format, path]] of (
    [
      ['GGUF', archPath(name, 'model.gguf')],
      ['config.json', archPath(name, 'hf')],
    ] as const
  ).entries()) {
    const missing = path === undefined ? ' (needs ../shared/data/goldens)' : '';
    test.skipIf(path === undefined)(`${format}${missing}`, async () => {
      await sweepPath(path as string, index + turn);
    });
  }
});

const pictured = Object.values(imageNames).flat();
test.each(pictured)('%s: config.json', async (name) => {
  await sweepPath(fileURLToPath(new URL(`../fixtures/images/${name}`, import.meta.url)), pictured.indexOf(name));
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
  await sweep(images, encoder.metadata, encoders.indexOf(name), describeBoth);
  await model.close();
  await encoder.close();
});
