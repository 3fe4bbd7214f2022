/** Golden models of every architecture give the original results after conversion from folder to GGUF and from GGUF to folder. */
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gguf as readWithHuggingFace } from '@huggingface/gguf';
import { loadEmbeddingModel, loadModel } from '@winnow/engine';
import { openGgufFile } from '@winnow/gguf/node';
import { architectures } from '@winnow/models';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { sharedDataPath } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { convertFiles } from '../src/index.node.js';

const goldenNames = JSON.parse(
  readFileSync(new URL('../../engine/test/golden-names.json', import.meta.url), 'utf8'),
) as Record<string, string[]>;
const encoderNames = JSON.parse(
  readFileSync(new URL('../../engine/test/encoder-golden-names.json', import.meta.url), 'utf8'),
) as Record<string, string[]>;
const encoders = new Set(Object.values(encoderNames).flat());

/** In the shared data folder, or committed in both formats. */
function archPath(name: string, file: string): string | undefined {
  const path = fileURLToPath(new URL(`../../engine/test/fixtures/arch/${name}/${file}`, import.meta.url));
  return sharedDataPath('data', 'goldens', 'arch', name, file) ?? (existsSync(path) ? path : undefined);
}
const tokens = [5, 9, 200, 31, 7, 64, 17, 3, 80, 120, 44, 9, 2, 150, 33, 90, 201, 77, 6, 5, 4, 19];

let backend: Backend;
let folder: string;
beforeAll(() => {
  backend = createReferenceBackend();
  folder = mkdtempSync(join(tmpdir(), 'winnow-convert-'));
});
afterAll(async () => {
  await backend.dispose();
  rmSync(folder, { recursive: true });
});

/** Log-probabilities after each token, or the embedding of the ids. */
async function answers(path: string, isEncoder: boolean, contextSize = 64): Promise<Float32Array[]> {
  if (isEncoder) {
    await using model = await loadEmbeddingModel(path, { backend, pooling: 'mean' });
    const { vocabSize } = model.config;
    return await model.embed([tokens.map((id) => id % vocabSize)], { normalize: false });
  }
  await using model = await loadModel(path, { backend, context: contextSize, maxSessions: 1 });
  return await model.logprobs(tokens, { positions: tokens.map((_, index) => index) });
}

const known = new Map<string, Promise<Float32Array[]>>();
/** The answers of a golden model, computed once for both directions. */
function knownAnswers(path: string, isEncoder: boolean): Promise<Float32Array[]> {
  const found = known.get(path) ?? answers(path, isEncoder);
  known.set(path, found);
  return found;
}

function worst(actual: readonly Float32Array[], expected: readonly Float32Array[]): number {
  expect(actual.length).toBe(expected.length);
  let max = 0;
  expected.forEach((row, at) => {
    expect(actual[at]?.length).toBe(row.length);
    row.forEach((value, i) => (max = Math.max(max, Math.abs(value - (actual[at] as Float32Array)[i]!))));
  });
  return max;
}

/** Names and shapes of the tensors of a checkpoint in one file. */
function checkpointShapes(folderPath: string): string[] {
  const bytes = readFileSync(join(folderPath, 'model.safetensors'));
  const header = bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE(0))).toString('utf8');
  return Object.entries(JSON.parse(header) as Record<string, { shape?: number[] }>)
    .map(([name, { shape }]) => (shape === undefined ? '' : `${name} ${shape.join('x')}`))
    .toSorted();
}

test('XLM-RoBERTa, whose GGUF file is of the architecture bert, is a folder of its own architecture', async () => {
  const path = join(folder, 'xlm-roberta-as-such');
  await convertFiles(archPath('xlm-roberta', 'model.gguf') as string, path);
  const config = (of: string): Record<string, unknown> =>
    JSON.parse(readFileSync(join(of, 'config.json'), 'utf8')) as Record<string, unknown>;
  expect(config(archPath('xlm-roberta', 'hf') as string)).toMatchObject(
    Object.fromEntries(
      ['architectures', 'model_type', 'max_position_embeddings', 'pad_token_id'].map((key) => [key, config(path)[key]]),
    ),
  );
  expect(checkpointShapes(path)).toContain('embeddings.position_embeddings.weight 130x32');
});

test('MPNet, for which GGUF files have no architecture, is refused', async () => {
  const refused = convertFiles(archPath('mpnet', 'hf') as string, join(folder, 'mpnet.gguf'));
  await expect(refused).rejects.toThrow('expected an architecture that GGUF files have, got "mpnet"');
});

test('layers of lexical weights and multi-vectors are left out with a notice', async () => {
  const { notices } = await convertFiles(archPath('xlm-roberta', 'hf') as string, join(folder, 'without-layers.gguf'));
  expect(notices).toContain(
    'left out sparse_linear.pt and colbert_linear.pt: GGUF files have no layers of lexical weights and multi-vectors',
  );
});

test.each(['colbert', 'colbert-modern'])('%s, whose only outputs are multi-vectors, is refused', async (name) => {
  const refused = convertFiles(archPath(name, 'hf') as string, join(folder, `${name}.gguf`));
  await expect(refused).rejects.toThrow(
    'layers: expected none that compute multi-vectors, which GGUF files cannot store',
  );
});

test('a rotary amplitude that GGUF files of DeepSeek cannot hold is refused', async () => {
  const path = join(folder, 'deepseek-amplitude');
  cpSync(archPath('deepseek3', 'hf') as string, path, { recursive: true });
  const config = JSON.parse(readFileSync(join(path, 'config.json'), 'utf8')) as object;
  const rope = { rope_type: 'yarn', rope_theta: 10000, factor: 4, original_max_position_embeddings: 512 };
  const convert = (mscale: number): Promise<unknown> => {
    const rope_parameters = { ...rope, mscale, mscale_all_dim: 1 };
    writeFileSync(join(path, 'config.json'), JSON.stringify({ ...config, rope_parameters }));
    return convertFiles(path, `${path}-${mscale}.gguf`);
  };
  await expect(convert(0.5)).rejects.toThrow('rope_scaling: expected mscale and mscale_all_dim that are equal');
  await convert(1);
});

test('a table of embeddings and logits with two factors becomes two tables', async () => {
  const path = join(folder, 'falcon-h1-tied');
  cpSync(archPath('falcon-h1-norm', 'hf') as string, path, { recursive: true });
  const config = JSON.parse(readFileSync(join(path, 'config.json'), 'utf8')) as object;
  const factors = { embedding_multiplier: 0.5, lm_head_multiplier: 2 };
  writeFileSync(join(path, 'config.json'), JSON.stringify({ ...config, ...factors }));
  await convertFiles(path, `${path}.gguf`);
  expect(worst(await answers(`${path}.gguf`, false), await answers(path, false))).toBeLessThan(2e-5);
});

/** Without those that have only a folder. */
const names = [...Object.values(goldenNames).flat(), ...encoders].filter(
  (name) => archPath(name, 'golden.json') === undefined || archPath(name, 'model.gguf') !== undefined,
);

/** Models that take images: images.test.ts, and convert-files.test.ts for those that are refused. */
const imageNames = Object.keys(
  JSON.parse(readFileSync(new URL('../../engine/test/image-golden-names.json', import.meta.url), 'utf8')) as object,
);

test('every architecture has a golden', () => {
  const tested = new Set([...Object.keys(goldenNames), ...Object.keys(encoderNames), ...imageNames]);
  expect(architectures.map(({ name }) => name).filter((name) => !tested.has(name))).toEqual([]);
});

describe.each(names)('%s', (name) => {
  const isEncoder = encoders.has(name);
  const [gguf, hf] = [archPath(name, 'model.gguf'), archPath(name, 'hf/config.json') && archPath(name, 'hf')];
  const needs = gguf === undefined ? ' (needs ../shared/data/goldens)' : '';
  /** Rounded rope factors and folded norms differ in the last digits. */
  const limit = 2e-5;

  // a golden may have no folder
  if (gguf === undefined || hf !== undefined) {
    test.skipIf(gguf === undefined)(`folder to GGUF${needs}`, async () => {
      const path = join(folder, `${name}.gguf`);
      await convertFiles(hf as string, path);
      expect(worst(await answers(path, isEncoder), await knownAnswers(gguf as string, isEncoder))).toBeLessThan(limit);
      // the same tensors as written by the converter of llama.cpp
      const [ours, theirs] = [await openGgufFile(path), await openGgufFile(gguf as string)];
      const shapes = (file: typeof ours): string[] =>
        [...file.tensors.values()].map(({ name: own, shape }) => `${own} ${shape.join('x')}`).toSorted();
      expect(shapes(ours)).toEqual(shapes(theirs));
      const oracle = await readWithHuggingFace(path, { allowLocalFile: true });
      expect(oracle.tensorInfos.length).toBe(theirs.tensors.size);
      await ours.close();
      await theirs.close();
    });
  }

  test.skipIf(gguf === undefined)(`GGUF to folder and back${needs}`, async () => {
    const path = join(folder, name);
    await convertFiles(gguf as string, path);
    const expected = await knownAnswers(gguf as string, isEncoder);
    // the same tensors as in checkpoints of transformers, which are not quantized
    if (hf !== undefined && !isEncoder && !name.endsWith('-mxfp4'))
      expect(checkpointShapes(path)).toEqual(checkpointShapes(hf));
    expect(worst(await answers(path, isEncoder), expected)).toBeLessThan(limit);
    const back = join(folder, `${name}-back.gguf`);
    await convertFiles(path, back);
    expect(worst(await answers(back, isEncoder), expected)).toBeLessThan(limit);
  });
});
