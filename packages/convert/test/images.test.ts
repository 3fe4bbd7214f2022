/** Models that take images give the same log-probabilities after conversion to the two files of llama.cpp. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { fileSink } from '@winnow/bytes/node';
import { loadModel, type ImagePrompt, type Model } from '@winnow/engine';
import { writeGguf, type GgufValueInput } from '@winnow/gguf';
import { openGgufFile } from '@winnow/gguf/node';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { convertFiles } from '../src/index.node.js';

const fixture = (path: string): string =>
  fileURLToPath(new URL(`../../engine/test/fixtures/images/${path}`, import.meta.url));
const picture = readFileSync(
  fileURLToPath(new URL('../../vision/src/__fixtures__/wide.png', import.meta.url)),
) as Uint8Array;

let backend: Backend;
let folder: string;
beforeAll(() => {
  backend = createReferenceBackend();
  folder = mkdtempSync(join(tmpdir(), 'winnow-convert-images-'));
});
afterAll(async () => {
  await backend.dispose();
  rmSync(folder, { recursive: true });
});

/** GGUF files cannot represent the word-level tokenizer of the folders, so the file gets that of the fixture. */
async function withVocabulary(path: string, vocabulary: string, target: string): Promise<void> {
  const [model, source] = [await openGgufFile(path), await openGgufFile(vocabulary)];
  const tokenizer = [...source.metadata].filter(([key]) => key.startsWith('tokenizer.'));
  const tensors = await Promise.all(
    [...model.tensors.values()].map(async (tensor) => {
      const { name, dtype, shape } = tensor;
      const data = new Uint8Array(tensor.sizeBytes);
      await tensor.read(data);
      return { name, dtype, shape, data };
    }),
  );
  const metadata = [...model.metadata, ...tokenizer] as [string, GgufValueInput][];
  await writeGguf(await fileSink(target), { metadata, tensors });
  await model.close();
  await source.close();
}

async function answers(model: Model, ids: Int32Array): Promise<Float32Array[]> {
  return model.logprobs(ids, { positions: Array.from(ids, (_, index) => index) });
}

/** Names and shapes of tensors. */
async function shapesOf(path: string): Promise<string[]> {
  const file = await openGgufFile(path);
  const shapes = [...file.tensors.values()].map(({ name, shape }) => `${name} ${shape.join('x')}`);
  await file.close();
  return shapes.toSorted();
}

const names = ['llava', 'llava-next', 'llava-onevision', 'smolvlm', 'smolvlm-25', 'gemma3'];

test.each([...names, 'qwen2vl', 'qwen25vl', 'qwen3vl', 'qwen3vlmoe'])('%s', async (name) => {
  const written = join(folder, `${name}-ids.gguf`);
  const { files } = await convertFiles(fixture(name), written);
  expect(files).toEqual([`${name}-ids.gguf`, `mmproj-${name}-ids.gguf`]);
  const mmproj = join(folder, `mmproj-${name}-ids.gguf`);
  const published = fixture(`${name.replace('-25', '')}-gguf`);
  // the older converter of LLaVA, which the fixture imitates, swaps the matrices of the FFN
  if (['smolvlm', 'gemma3', 'llava-onevision', 'qwen2vl', 'qwen25vl', 'qwen3vl', 'qwen3vlmoe'].includes(name)) {
    expect(await shapesOf(mmproj)).toEqual(await shapesOf(join(published, 'mmproj-model-f16.gguf')));
  }
  const path = join(folder, `${name}.gguf`);
  await withVocabulary(written, join(published, 'model.gguf'), path);

  const options = { backend, maxSessions: 1, context: 160, onUnsupported: 'error' } as const;
  await using original = await loadModel(fixture(name), options);
  await using converted = await loadModel(path, { ...options, mmproj });
  const promptOf = ({ imageToken }: Model): ImagePrompt => ({
    ...{ prompt: `${imageToken} a picture of the sea`, images: [picture] },
  });
  const ids = await original.tokenize(promptOf(original));
  const convertedIds = await converted.tokenize(promptOf(converted));
  // rows of images have negative ids, hashes also of the normalization, which GGUF files have in float32
  const textOf = (of: Int32Array): number[] => Array.from(of, (id) => Math.max(id, -1));
  expect(textOf(convertedIds)).toEqual(textOf(ids));
  const [rows, expected] = [await answers(converted, convertedIds), await answers(original, ids)];
  for (const [position, row] of rows.entries()) {
    for (const [token, value] of row.entries()) expect(value).toBeCloseTo(expected[position]?.[token] as number, 4);
  }
});

/** A copy of a fixture with another text in one of its files. */
function edited(name: string, file: string, from: RegExp, to: string): string {
  const path = mkdtempSync(join(folder, `${name}-`));
  cpSync(fixture(name), path, { recursive: true });
  writeFileSync(join(path, file), readFileSync(join(path, file), 'utf8').replace(from, to));
  return path;
}

test('window settings that mmproj files cannot represent are rejected', async () => {
  const path = edited('qwen25vl', 'config.json', /("fullatt_block_indexes": \[\s*)1/, '$11, 2');
  const converted = convertFiles(path, join(folder, 'irregular.gguf'));
  await expect(converted).rejects.toThrow(
    'fullatt_block_indexes: the format cannot represent this setting: expected [1,2]',
  );
});

test('default pixel limits of a folder are written to the file', async () => {
  const path = edited('qwen3vl', 'preprocessor_config.json', /"size": \{[^}]*\},/, '');
  await convertFiles(path, join(folder, 'unlimited.gguf'));
  const file = await openGgufFile(join(folder, 'mmproj-unlimited.gguf'));
  const limits = ['min', 'max'].map((which) => file.metadata.get(`clip.vision.image_${which}_pixels`)?.value);
  await file.close();
  expect(limits).toEqual([3136, 1_003_520]);
  const wrong = edited('qwen3vl', 'preprocessor_config.json', /"longest_edge": 6400/, '"longest_edge": 4294967296');
  await expect(convertFiles(wrong, join(folder, 'wrong.gguf'))).rejects.toThrow(
    'max_pixels: expected a number of pixels below 2^32 in preprocessor_config.json, got 4294967296',
  );
});

test('notices report how readers preprocess images differently', async () => {
  const path = edited('qwen25vl', 'preprocessor_config.json', /"rescale_factor": [\d.]+/, '"rescale_factor": 0.5');
  const { notices } = await convertFiles(path, join(folder, 'otherwise.gguf'));
  expect(notices).toEqual([
    expect.stringContaining('GGUF has no tokenizer'),
    expect.stringContaining(`readers take rescale_factor 0.5 as ${1 / 255}`),
    expect.stringContaining('llama.cpp computes windows of 112 pixels, those of this encoder have 32'),
  ]);
});

test.each([
  ['qwen2vl', 'qwen2'],
  ['qwen3vl', 'qwen3'],
  ['qwen3vlmoe', 'qwen3moe'],
])('the language model of %s becomes a folder of %s', async (name, plain) => {
  const path = join(folder, `${name}-text`);
  const { notices } = await convertFiles(fixture(`${name}-gguf/model.gguf`), path);
  expect(notices).toContainEqual(`the language model is written as ${plain}, without images`);
  const options = { backend, maxSessions: 1, context: 32 };
  await using text = await loadModel(path, options);
  await using model = await loadModel(fixture(`${name}-gguf/model.gguf`), { ...options, mmproj: false });
  const ids = Int32Array.of(2, 7, 14, 12, 8);
  expect(await answers(text, ids)).toEqual(await answers(model, ids));
});
