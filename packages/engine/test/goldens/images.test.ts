/** Tiny models that take images, with random weights, against vectors of transformers in float64. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memorySink, memorySource, type StoredTensor } from '@winnow/bytes';
import { describeModel } from '@winnow/models';
import { type Backend } from '@winnow/ops';
import { fastClock, testCoverage } from '@winnow/test-utils';
import type { RgbImage } from '@winnow/vision';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  inspectModel,
  loadEmbeddingModel,
  loadModel,
  prepareChat,
  type EmbeddingModel,
  type GenerateOptions,
  type ImagePrompt,
  type Model,
} from '../../src/index.js';
import { openPath } from '../../src/host/open-path.node.js';
import { useBackends } from '../support/backends.js';
import { archPath, decodeFloats, imageNames, maxDifference, readJson } from '../support/golden-files.js';

interface Golden {
  readonly texts: readonly { readonly text: string; readonly tokens: readonly number[]; readonly vector: string }[];
  readonly images: readonly { readonly file: string; readonly vector: string }[];
}

/** The limit that the goldens' documentation derives for an f32 engine. */
const limit = 5e-4;

const pathOf = (name: string): string => fileURLToPath(new URL(`../fixtures/images/${name}`, import.meta.url));
const picture = (name: string): Uint8Array =>
  new Uint8Array(readFileSync(fileURLToPath(new URL(`../../../vision/src/__fixtures__/${name}`, import.meta.url))));

const backends = useBackends();

const embedders = ['clip', 'siglip'].flatMap((architecture) => imageNames[architecture] as readonly string[]);
const cases = embedders.flatMap((name) => ['WebAssembly', 'reference'].map((backend) => ({ name, backend })));

describe.each(cases)('$name, $backend backend', ({ name, backend }) => {
  const { texts, images } = readJson<Golden>(`${pathOf(name)}/golden.json`);
  let model: EmbeddingModel;
  beforeAll(async () => {
    model = await loadEmbeddingModel(pathOf(name), { backend: backends[backend] as Backend, onUnsupported: 'error' });
  });
  afterAll(() => model.dispose());

  test('images, files and pixels alike', async () => {
    expect(model.takesImages).toBe(true);
    const files = images.map(({ file }) => picture(file));
    const vectors = await model.embedImages(files, { normalize: false });
    for (const [index, { vector }] of images.entries()) {
      expect(maxDifference(vectors[index] as Float32Array, decodeFloats(vector))).toBeLessThan(limit);
    }
    const [unit] = await model.embedImages(files.slice(1));
    expect(Math.hypot(...(unit as Float32Array))).toBeCloseTo(1, 6);
  });

  test('texts, alone and together, have the tokens and vectors of transformers', async () => {
    const expected = texts.map(({ vector }) => decodeFloats(vector));
    for (const { text, tokens } of texts) expect([...model.encodeText(text)]).toEqual(tokens);
    const together = await model.embed(
      texts.map(({ text }) => text),
      { normalize: false },
    );
    const [alone] = await model.embed([texts[1]?.text as string], { normalize: false });
    for (const [index, vector] of together.entries()) {
      expect(maxDifference(vector, expected[index] as Float32Array)).toBeLessThan(limit);
    }
    expect(maxDifference(alone as Float32Array, expected[1] as Float32Array)).toBeLessThan(limit);
  });
});

interface PromptGolden {
  readonly text: string;
  readonly files: readonly string[];
  readonly tokens: readonly number[];
  readonly numTokens: number;
  /** `[numTokens, vocabSize]`. */
  readonly logprobs: string;
  readonly greedy: readonly number[];
}

const promptOf = ({ text, files }: PromptGolden): ImagePrompt => ({ prompt: text, images: files.map(picture) });
const greedyOf = ({ greedy }: PromptGolden): GenerateOptions => ({
  ...{ temperature: 0, maxTokens: greedy.length, ignoreEos: true },
});

async function checkGolden(model: Model, golden: PromptGolden, batchSize: number): Promise<void> {
  const ids = await model.tokenize(promptOf(golden));
  expect(ids.length).toBe(golden.numTokens);
  const positions = Array.from(ids, (_, position) => position);
  const rows = await model.logprobs(ids, { positions, batchSize });
  const { vocabSize } = model.config;
  const expected = decodeFloats(golden.logprobs);
  for (const position of positions) {
    const row = expected.subarray(position * vocabSize, (position + 1) * vocabSize);
    expect(maxDifference(rows[position] as Float32Array, row)).toBeLessThan(limit);
  }
  const { tokens } = await model.generate(promptOf(golden), greedyOf(golden)).result();
  expect(tokens).toEqual(golden.greedy);
}

async function checkMessages(model: Model, golden: PromptGolden): Promise<void> {
  const content = golden.text.replace(`${model.imageToken} `, '');
  const messages = [{ role: 'user', content, images: golden.files.map(picture) }];
  const { prompt } = await prepareChat(model, { messages });
  expect(prompt).toEqual(await model.tokenize(promptOf(golden)));
  for (const same of [prompt, messages]) {
    expect((await model.generate(same, greedyOf(golden)).result()).tokens).toEqual(golden.greedy);
  }
  const missing = model.tokenize({ prompt: golden.text, images: [] });
  await expect(missing).rejects.toThrow(`images: expected 1, one per token "${model.imageToken}"`);
  const many = { prompt: `${model.imageToken} `.repeat(200), images: Array<Uint8Array>(200).fill(picture('wide.png')) };
  await expect(model.tokenize(many)).rejects.toThrow('available 160 tokens');
  await expect(model.tokenize([-5])).rejects.toThrow('prompt[0]: expected a token id below');
}

async function checkSessions(model: Model, golden: PromptGolden): Promise<void> {
  const options = { ...greedyOf(golden), maxTokens: 4 };
  using session = model.createSession();
  const first = await session.generate(promptOf(golden), options).result();
  const again = await session.generate(promptOf(golden), options).result();
  expect(again.tokens).toEqual(first.tokens);
  expect(again.cachedTokens).toBe(golden.numTokens - 1);
  const ids = await model.tokenize(promptOf(golden));
  const other = { prompt: golden.text, images: [picture('tall.jpg')] };
  const { cachedTokens } = await session.generate(other, options).result();
  expect(cachedTokens).toBe(ids.findIndex((id) => id < 0));
  await session.generate(promptOf(golden), { ...options, maxTokens: 2 }).result();
  const sink = memorySink();
  await session.save(sink);
  using restored = await model.restoreSession(memorySource(sink.toBytes().slice()));
  expect((await restored.resume({ maxTokens: 2 }).result()).tokens).toEqual(first.tokens.slice(2));
}

const languageModels = [
  'llava',
  'llava-next',
  'llava-onevision',
  'smolvlm',
  'gemma3',
  'qwen2vl',
  'qwen3vl',
  'qwen3vlmoe',
]
  .flatMap((architecture) => imageNames[architecture] ?? [])
  .flatMap((name) => ['WebAssembly', 'reference'].map((backend) => ({ name, backend })));

describe.each(languageModels)('$name writes, $backend backend', ({ name, backend: backendName }) => {
  const { prompts } = readJson<{ prompts: readonly PromptGolden[] }>(`${pathOf(name)}/golden.json`);
  let model: Model;
  beforeAll(async () => {
    const backend = backends[backendName] as Backend;
    model = await loadModel(pathOf(name), { backend, onUnsupported: 'error', context: 160 });
  });
  afterAll(() => model.dispose());

  const isQuick = testCoverage !== 'full' && backendName === 'reference';

  // steps and sessions are not of the backend: the slow reference runs one size of steps
  test.each(isQuick ? [7] : [1, 7, 64])('log-probabilities and greedy ids in steps of %i', async (batchSize) => {
    for (const golden of prompts) await checkGolden(model, golden, batchSize);
  });
  if (isQuick) return;

  test('a message with images is a prompt with images', () => checkMessages(model, prompts[0] as PromptGolden));

  test('sessions share the prefix of an image, and not that of another one', () =>
    checkSessions(model, prompts[0] as PromptGolden));
});

const qwenGolden = (name: string): readonly PromptGolden[] =>
  readJson<{ prompts: readonly PromptGolden[] }>(`${pathOf(name)}/golden.json`).prompts;

test('qwen2.5-vl: a session that goes on after an image has the positions of one prompt, also in another program', async () => {
  const [golden] = qwenGolden('qwen25vl') as [PromptGolden];
  const backend = backends['WebAssembly'] as Backend;
  const load = (): Promise<Model> => loadModel(pathOf('qwen25vl'), { backend, context: 128 });
  await using model = await load();
  const options = { temperature: 0, maxTokens: 6, ignoreEos: true };
  const later = 'green stripes over the sea';
  const more = { ...promptOf(golden), prompt: `${golden.text} ${later}` };
  const expected = await model.generate(more, options).result();
  using session = model.createSession();
  await session.generate(promptOf(golden), { ...options, maxTokens: 2 }).result();
  const sink = memorySink();
  await session.save(sink);
  // a text of its own, and then the image again: positions are counted anew
  await session.generate(later, options).result();
  const again = await session.generate(more, options).result();
  expect(again.tokens).toEqual(expected.tokens);
  await using other = await load();
  using restored = await other.restoreSession(memorySource(sink.toBytes().slice()));
  // no image is in memory here
  expect((await restored.resume({ maxTokens: 4 }).result()).tokens).toEqual(golden.greedy.slice(2, 6));
  const continued = await restored.generate(more, options).result();
  expect([continued.cachedTokens, continued.tokens]).toEqual([golden.numTokens, expected.tokens]);
});

test('qwen2.5-vl: batches, drafts and pages keep positions, and a policy that moves positions is refused', async () => {
  const prompts = qwenGolden('qwen25vl');
  const backend = backends['WebAssembly'] as Backend;
  const greedy = prompts.map((each) => each.greedy);
  for (const more of [
    { batchSize: 8, attention: 'page-topk:budget=all' },
    { batchSize: 5, speculative: 'lookup' as const },
  ]) {
    await using model = await loadModel(pathOf('qwen25vl'), { backend, context: 128, ...more });
    const answers = await Promise.all(prompts.map((each) => model.generate(promptOf(each), greedyOf(each)).result()));
    expect(answers.map(({ tokens }) => tokens)).toEqual(greedy);
  }
  // drafts that are rejected leave their positions
  await using drafting = await loadModel(pathOf('qwen25vl'), {
    ...{ backend, context: 128, maxSessions: 1, speculative: 'lookup', now: fastClock() },
  });
  for (const each of prompts) {
    expect((await drafting.generate(promptOf(each), greedyOf(each)).result()).tokens).toEqual(each.greedy);
  }
  const { numDraftedTokens, numAcceptedTokens } = drafting.metrics().speculation;
  expect(numDraftedTokens).toBeGreaterThan(numAcceptedTokens);
  const streaming = loadModel(pathOf('qwen25vl'), { backend, attention: 'streaming:sinks=4,window=16' });
  await expect(streaming).rejects.toThrow('attention: expected one that rotates queries by their own positions');
});

test('images of Gemma 3 have steps of their own beside other sessions, and under a policy', async () => {
  const { prompts } = readJson<{ prompts: readonly PromptGolden[] }>(`${pathOf('gemma3')}/golden.json`);
  const backend = backends['WebAssembly'] as Backend;
  // pages without a limit are all keys
  const options = { backend, context: 128, batchSize: 8, attention: 'page-topk:budget=all' };
  await using model = await loadModel(pathOf('gemma3'), options);
  const answers = await Promise.all(prompts.map((each) => model.generate(promptOf(each), greedyOf(each)).result()));
  expect(answers.map(({ tokens }) => tokens)).toEqual(prompts.map(({ greedy }) => greedy));
  // text that names the token of an image is text where special tokens are not parsed
  const text = model.tokenizer.encode('<start_of_image>', { parseSpecialTokens: false });
  expect(text.every((id) => id >= 0)).toBe(true);
});

test('an image of Gemma 3 after offloaded tokens is refused', async () => {
  const { prompts } = readJson<{ prompts: readonly PromptGolden[] }>(`${pathOf('gemma3')}/golden.json`);
  const [golden] = prompts as [PromptGolden];
  const backend = backends['WebAssembly'] as Backend;
  const kvCache = { budget: 96 * 1024, offload: { memory: 1 << 20 } };
  await using model = await loadModel(pathOf('gemma3'), { backend, context: 1024, maxSessions: 1, kvCache });
  const prompt = { prompt: `${'the sea '.repeat(250)}${golden.text}`, images: golden.files.map(picture) };
  await expect(model.generate(prompt, greedyOf(golden)).result()).rejects.toThrow('kvCache: expected no tiers');
});

/** The vocabulary of the GGUF files has the words with the spaces before them; that of Qwen calls the token of images otherwise. */
function inGguf(golden: PromptGolden, name: string): PromptGolden {
  const { text } = golden;
  const spaced = (text.startsWith('<') ? text : ` ${text}`).replaceAll(' <', '<');
  return { ...golden, text: name.startsWith('qwen') ? spaced.replaceAll('<image>', '<|image_pad|>') : spaced };
}

const ggufOf = (name: string): string => pathOf(`${name}-gguf/model.gguf`);
const mmprojOf = (name: string): string => pathOf(`${name}-gguf/mmproj-model-f16.gguf`);

const inFiles = [
  'llava',
  'llava-next',
  'llava-onevision',
  'smolvlm',
  'gemma3',
  'qwen2vl',
  'qwen25vl',
  'qwen3vl',
  'qwen3vlmoe',
];

test.each(inFiles)('%s: the GGUF file with its image encoder beside it', async (name) => {
  const { prompts } = readJson<{ prompts: readonly PromptGolden[] }>(`${pathOf(name)}/golden.json`);
  const backend = backends['WebAssembly'] as Backend;
  const options = { backend, context: 160 };
  await using model = await loadModel(ggufOf(name), { ...options, onUnsupported: 'error' });
  expect(model.notices).toEqual([]);
  expect((await inspectModel(ggufOf(name), options)).plan).toEqual(model.plan);
  const text = await inspectModel(ggufOf(name), { ...options, mmproj: false });
  expect(text.plan.totalBytes).toBeLessThan(model.plan.totalBytes);
  for (const golden of prompts) await checkGolden(model, inGguf(golden, name), 64);
});

test('image encoders of other models and unknown ones are refused by name', async () => {
  const backend = backends['WebAssembly'] as Backend;
  const llama = archPath('llama', 'model.gguf') as string;
  const load = (location: string, mmproj?: string | Blob | false): Promise<Model> =>
    loadModel(location, { backend, ...(mmproj === undefined ? {} : { mmproj }) });
  await expect(load(llama, mmprojOf('llava'))).rejects.toThrow('embedding length: expected');
  await expect(load(llama, mmprojOf('gemma3'))).rejects.toThrow('clip.projector_type: expected an encoder for llama');
  await expect(load(llama, ggufOf('llava'))).rejects.toThrow('general.architecture: expected clip, an image encoder');
  await expect(load(pathOf('llava'), mmprojOf('llava'))).rejects.toThrow('mmproj: expected nothing');
  const bytes = readFileSync(mmprojOf('llava'));
  bytes.write('ldp', bytes.indexOf('mlp', bytes.indexOf('clip.projector_type')));
  const unknown = load(ggufOf('llava'), new Blob([new Uint8Array(bytes)]));
  await expect(unknown).rejects.toThrow('clip.projector_type: expected gemma3, idefics3, mlp, qwen2vl_merger');
  const tiles = readFileSync(mmprojOf('llava-next'));
  tiles.write('mm_patch_merge_typo', tiles.indexOf('mm_patch_merge_type'));
  const flat = load(ggufOf('llava-next'), new Blob([new Uint8Array(tiles)]));
  await expect(flat).rejects.toThrow('clip.vision.mm_patch_merge_type: expected spatial_unpad, got nothing');
  const other = load(ggufOf('qwen25vl'), mmprojOf('qwen3vl'));
  await expect(other).rejects.toThrow('clip.projector_type: expected an encoder for qwen2vl, got "qwen3vl_merger"');
  await using text = await load(ggufOf('llava'), false);
  expect(text.imageToken).toBeUndefined();
  const folder = mkdtempSync(join(tmpdir(), 'winnow-mmproj-'));
  cpSync(llama, join(folder, 'model.gguf'));
  cpSync(mmprojOf('llava'), join(folder, 'mmproj-F16.gguf'));
  await using beside = await load(join(folder, 'model.gguf'));
  expect(beside.notices).toEqual([expect.stringContaining('the image encoder beside the model is not used: ')]);
  writeFileSync(join(folder, 'mmproj-F16.gguf'), bytes.subarray(0, 100)); // half a download
  await using half = await load(join(folder, 'model.gguf'));
  expect(half.notices).toEqual([expect.stringContaining('the image encoder beside the model is not used: ')]);
  rmSync(folder, { recursive: true });
});

const frames = ['v.patch_embd.weight', 'v.patch_embd.weight.1'];

test.each([
  ['both frames', frames, 'v.patch_embd.weight: expected a convolution of four dimensions, got '],
  ['the second frame', frames.slice(1), 'v.patch_embd.weight.1: expected a convolution as v.patch_embd.weight, '],
])('matrices are refused as %s of a convolution', async (_, names, message) => {
  const [model, opened] = [await openPath(ggufOf('qwen2vl'), {}), await openPath(mmprojOf('qwen2vl'), {})];
  const [text, encoder] = [await model.openFile(), await opened.openFile()];
  const tensors = new Map(encoder.store.tensors);
  for (const name of names) {
    const tensor = tensors.get(name) as StoredTensor;
    tensors.set(name, {
      ...tensor,
      name,
      shape: [tensor.shape[0] as number, tensor.shape.slice(1).reduce((a, b) => a * b)],
    });
  }
  const store = { ...encoder.store, tensors, close: () => Promise.resolve() };
  const described = describeModel(text, { file: { ...encoder, store }, idOf: () => 1 });
  await expect(described).rejects.toThrow(message);
  await model.close();
  await opened.close();
});

test('pixels beyond the last whole patch are left out, as in SigLIP so400m of 384 pixels', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'winnow-images-'));
  cpSync(pathOf('siglip'), folder, { recursive: true });
  const edit = (name: string, from: RegExp, to: string): void =>
    writeFileSync(join(folder, name), readFileSync(join(folder, name), 'utf8').replaceAll(from, to));
  edit('config.json', /"image_size": 32/g, '"image_size": 35');
  edit('preprocessor_config.json', /("height"|"width"): 32/g, '$1: 35');
  const square = (size: number): RgbImage => ({
    ...{ width: size, height: size },
    data: Uint8Array.from({ length: 3 * size * size }, (_, index) => {
      const pixel = Math.floor(index / 3);
      return (37 * Math.floor(pixel / size) + 11 * (pixel % size) + 5 * (index % 3)) % 256;
    }),
  });
  await using whole = await loadEmbeddingModel(pathOf('siglip'));
  await using larger = await loadEmbeddingModel(folder);
  expect(await larger.embedImages([square(35)])).toEqual(await whole.embedImages([square(32)]));
  rmSync(folder, { recursive: true });
});

test('refusals name what is wrong', async () => {
  await using clip = await loadEmbeddingModel(pathOf('clip'));
  const pixels = { width: 2, height: 2, data: new Uint8Array(11) };
  await expect(clip.embedImages([picture('wide.png'), pixels])).rejects.toThrow(
    'images[1]: expected the bytes of a file',
  );
  await expect(clip.embedImages([new Uint8Array(9)])).rejects.toThrow(
    'images[0]: format: expected a PNG, JPEG or WebP',
  );
  await expect(loadEmbeddingModel(pathOf('clip'), { pooling: 'mean' })).rejects.toThrow('pooling: expected last');
  await expect(loadEmbeddingModel(pathOf('siglip'), { context: 8 })).rejects.toThrow('context: expected 16');
  await using bert = await loadEmbeddingModel(archPath('bert-mean', 'model.gguf') as string);
  expect(bert.takesImages).toBe(false);
  await using tiny = await loadModel(archPath('qwen3', 'model.gguf') as string);
  expect(tiny.imageToken).toBeUndefined();
  const prompt = { prompt: 'a', images: [picture('wide.png')] };
  await expect(tiny.tokenize(prompt)).rejects.toThrow('images: expected none, since this model takes no images');
  await expect(bert.embedImages([picture('wide.png')])).rejects.toThrow(
    'images: expected a model with an image encoder',
  );
});
