/** LoRA adapters in both formats on models in both formats, at run time and merged, against weights merged in f64. */
import { memorySink, memorySource } from '@winnow/bytes';
import { writeGguf, type GgufTensorInput } from '@winnow/gguf';
import { memoryFolder, type HubFiles } from '@winnow/hub';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { openSafetensors, writeSafetensors, type TensorToWrite } from '@winnow/safetensors';
import { createRng, decode, FormatError, numElements } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type AdapterOption, type LoadOptions, type ModelLocation } from '../../src/index.js';
import { archPath, maxDifference } from '../support/golden-files.js';
import { localFolder } from '@winnow/hub/node';

const tokens = [5, 9, 200, 31, 7, 64, 17, 3];
let backend: Backend;
beforeAll(() => (backend = createReferenceBackend()));
afterAll(() => backend.dispose());

interface Pair {
  readonly a: Float32Array; // [rank, numInputs]
  readonly b: Float32Array; // [numOutputs, rank]
  readonly rank: number;
  readonly shape: readonly [numOutputs: number, numInputs: number];
}

/** Random LoRA factors for these modules of a folder. */
function pairsFor(modules: Readonly<Record<string, readonly [number, number, number]>>, seed = 3): Map<string, Pair> {
  const rng = createRng(seed);
  const random = (length: number): Float32Array => Float32Array.from({ length }, () => 0.2 * rng.nextGaussian());
  return new Map(
    Object.entries(modules).map(([name, [numOutputs, numInputs, rank]]) => [
      name,
      { a: random(rank * numInputs), b: random(numOutputs * rank), rank, shape: [numOutputs, numInputs] },
    ]),
  );
}

const bytesOf = (values: Float32Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

async function peftFolder(pairs: ReadonlyMap<string, Pair>, config: object): Promise<HubFiles> {
  const tensors: TensorToWrite[] = [...pairs].flatMap(([name, { a, b, rank, shape }]) => [
    {
      name: `base_model.model.${name}.lora_A.weight`,
      dtype: 'f32' as const,
      shape: [rank, shape[1]],
      data: bytesOf(a),
    },
    {
      name: `base_model.model.${name}.lora_B.weight`,
      dtype: 'f32' as const,
      shape: [shape[0], rank],
      data: bytesOf(b),
    },
  ]);
  const sink = memorySink();
  await writeSafetensors(sink, { tensors });
  return memoryFolder({
    'adapter_config.json': JSON.stringify({ peft_type: 'LORA', ...config }),
    'adapter_model.safetensors': sink.toBytes(),
  });
}

async function ggufAdapter(pairs: ReadonlyMap<string, Pair>, alpha: number, metadata = {}): Promise<Uint8Array> {
  const tensors: GgufTensorInput[] = [...pairs].flatMap(([name, { a, b, rank, shape }]) => [
    { name: `${name}.weight.lora_a`, dtype: 'f32' as const, shape: [rank, shape[1]], data: bytesOf(a) },
    { name: `${name}.weight.lora_b`, dtype: 'f32' as const, shape: [shape[0], rank], data: bytesOf(b) },
  ]);
  const sink = memorySink();
  await writeGguf(sink, {
    metadata: {
      'general.type': 'adapter',
      'general.architecture': 'llama',
      'adapter.type': 'lora',
      'adapter.lora.alpha': { type: 'float32', value: alpha },
      ...metadata,
    },
    tensors,
  });
  return sink.toBytes();
}

/** The folder with `W + factor(name) B A`, summed in f64. */
async function mergedFolder(name: string, pairs: ReadonlyMap<string, Pair>, factor: (name: string) => number) {
  const files = localFolder(archPath(name, 'hf') as string);
  const stored = await openSafetensors(await files.open('model.safetensors'));
  const tensors = await Promise.all(
    [...stored.tensors.values()].map(async (tensor): Promise<TensorToWrite> => {
      const bytes = new Uint8Array(tensor.sizeBytes);
      await tensor.read(bytes);
      const values = new Float32Array(numElements(tensor.shape));
      decode(tensor.dtype, bytes, values);
      const module = tensor.name.replace(/\.weight$/, '');
      const pair = pairs.get(module);
      if (pair !== undefined) {
        const [numOutputs, numInputs] = pair.shape;
        for (let row = 0; row < numOutputs; row++) {
          for (let column = 0; column < numInputs; column++) {
            let sum = 0;
            for (let k = 0; k < pair.rank; k++) sum += pair.b[row * pair.rank + k]! * pair.a[k * numInputs + column]!;
            values[row * numInputs + column] = values[row * numInputs + column]! + factor(module) * sum;
          }
        }
      }
      return { name: tensor.name, dtype: 'f32', shape: tensor.shape, data: bytesOf(values) };
    }),
  );
  const sink = memorySink();
  await writeSafetensors(sink, { tensors });
  const config = await files.open('config.json');
  const json = new Uint8Array(config.sizeBytes);
  await config.read(0, json);
  await config.close();
  await stored.close();
  return memoryFolder({ 'config.json': json, 'model.safetensors': sink.toBytes() });
}

async function logprobs(location: ModelLocation, options: LoadOptions = {}): Promise<Float32Array[]> {
  await using model = await loadModel(location, { backend, maxSessions: 1, context: 64, ...options });
  return await model.logprobs(tokens, { positions: tokens.map((_, index) => index) });
}

function worst(actual: readonly Float32Array[], expected: readonly Float32Array[]): number {
  return Math.max(...expected.map((row, at) => maxDifference(actual[at] as Float32Array, row)));
}

/** A PEFT adapter with a scale of 1, for factors of rank 4. */
const peftOf = (pairs: ReadonlyMap<string, Pair>): Promise<HubFiles> => peftFolder(pairs, { r: 4, lora_alpha: 4 });

/** Compares these files of a golden model with an adapter, and the folder with weights merged with `pairs`. */
async function expectMerged(
  name: string,
  files: readonly ('hf' | 'model.gguf')[],
  pairs: ReadonlyMap<string, Pair>,
  adapterOf: () => Promise<ModelLocation> = () => peftOf(pairs),
): Promise<void> {
  const expected = await logprobs(await mergedFolder(name, pairs, () => 1));
  for (const file of files) {
    const adapters = [{ source: await adapterOf() }];
    const actual = await logprobs(archPath(name, file) as string, { lora: { adapters } });
    expect(worst(actual, expected)).toBeLessThan(limit);
  }
}

/** q [64, 64], k [32, 64], gate [128, 64], down [64, 128] of two layers, and the output matrix. */
const llamaModules = {
  'model.layers.0.self_attn.q_proj': [64, 64, 4],
  'model.layers.0.self_attn.k_proj': [32, 64, 2],
  'model.layers.1.self_attn.o_proj': [64, 64, 4],
  'model.layers.1.mlp.gate_proj': [128, 64, 4],
  'model.layers.1.mlp.down_proj': [64, 128, 4],
} as const;
const rankPattern = { 'model.layers.0.self_attn.k_proj': 2 };
const llama = archPath('llama', 'hf');
const needs = llama === undefined ? ' (needs ../shared/data/goldens)' : '';
/** Allows for sums in another order. */
const limit = 1e-4;

const hf = (): string => archPath('llama', 'hf') as string;
const gguf = (): string => archPath('llama', 'model.gguf') as string;
const llamaPairs = pairsFor(llamaModules);
const alpha = 6;
const scaleOf = (name: string): number => alpha / (llamaPairs.get(name) as Pair).rank;
const peftConfig = { r: 4, lora_alpha: alpha, rank_pattern: rankPattern };

/** The factors with GGUF names, and the rows of q and k in GGUF order. */
function permuted(pairs: ReadonlyMap<string, Pair>): Map<string, Pair> {
  return new Map(
    [...pairs].map(([name, pair]) => {
      const own = name
        .replace('model.layers.', 'blk.')
        .replace(/\.(self_attn|mlp)\.(q|k|gate|down|o)_proj$/, (_, __, which: string) =>
          which === 'gate' || which === 'down' ? `.ffn_${which}` : which === 'o' ? '.attn_output' : `.attn_${which}`,
        );
      if (!/attn_[qk]$/.test(own)) return [own, pair] as const;
      // heads of 16: row j of the first half goes to 2j, of the second to 2j + 1
      const b = new Float32Array(pair.b.length);
      for (let row = 0; row < pair.shape[0]; row++) {
        const at = row % 16;
        const to = row - at + (at < 8 ? 2 * at : 2 * (at - 8) + 1);
        b.set(pair.b.subarray(row * pair.rank, (row + 1) * pair.rank), to * pair.rank);
      }
      return [own, { ...pair, b }] as const;
    }),
  );
}

describe.skipIf(llama === undefined)(`adapters on the golden llama${needs}`, () => {
  test('a PEFT folder, on a folder and on a GGUF file, at run time and merged', async () => {
    const expected = await logprobs(await mergedFolder('llama', llamaPairs, scaleOf));
    expect(worst(await logprobs(hf()), expected)).toBeGreaterThan(0.1);
    for (const location of [hf(), gguf()]) {
      for (const adapterMode of ['runtime', 'merge'] as const) {
        const adapters = [{ source: await peftFolder(llamaPairs, peftConfig) }];
        expect(worst(await logprobs(location, { lora: { adapters, mode: adapterMode } }), expected)).toBeLessThan(
          limit,
        );
      }
    }
  });

  test('a GGUF adapter, whose q and k are permuted like the model', async () => {
    const bytes = await ggufAdapter(permuted(llamaPairs), alpha);
    const expected = await logprobs(await mergedFolder('llama', llamaPairs, (name) => 0.5 * scaleOf(name)));
    for (const location of [hf(), gguf()]) {
      const adapters = [{ source: memorySource(bytes), scale: 0.5 }];
      expect(worst(await logprobs(location, { lora: { adapters } }), expected)).toBeLessThan(limit);
    }
  });

  test('several adapters, rsLoRA and alpha patterns', async () => {
    const second = pairsFor({ 'model.layers.0.self_attn.q_proj': [64, 64, 4] }, 11);
    const adapters = [
      { source: await peftFolder(llamaPairs, { ...peftConfig, use_rslora: true, alpha_pattern: { down_proj: 3 } }) },
      { source: await peftFolder(second, { r: 4, lora_alpha: 2 }), scale: -1 },
    ];
    const first = await mergedFolder('llama', llamaPairs, (name) => {
      const { rank } = llamaPairs.get(name) as Pair;
      return (name.endsWith('down_proj') ? 3 : alpha) / Math.sqrt(rank);
    });
    const expected = await logprobs(first, {
      lora: { adapters: [{ source: await peftFolder(second, { r: 4, lora_alpha: 2 }), scale: -1 }] },
    });
    expect(worst(await logprobs(hf(), { lora: { adapters } }), expected)).toBeLessThan(limit);
  });
});

describe.skipIf(llama === undefined)(`quantized models and sessions with adapters${needs}`, () => {
  test('on quantized weights at run time; merging requantizes them and gives a notice', async () => {
    const adapters: AdapterOption[] = [{ source: await peftFolder(llamaPairs, peftConfig) }];
    const exact = await logprobs(await mergedFolder('llama', llamaPairs, scaleOf));
    const plain = worst(await logprobs(hf(), { quantize: 'q8_0' }), await logprobs(hf()));
    const adapted = worst(await logprobs(hf(), { quantize: 'q8_0', lora: { adapters } }), exact);
    expect(adapted).toBeLessThan(4 * plain);
    const merged = await loadModel(hf(), {
      backend,
      maxSessions: 1,
      quantize: 'q8_0',
      lora: { adapters, mode: 'merge' },
    });
    expect(merged.notices).toEqual([]);
    await merged.dispose();
  });

  test('a session saved with one adapter is rejected with another', async () => {
    const folder = await peftFolder(llamaPairs, peftConfig);
    const sink = memorySink();
    await using plain = await loadModel(hf(), { backend, maxSessions: 1 });
    const session = plain.createSession();
    await session.generate(tokens, { maxTokens: 1, temperature: 0 }).result();
    await session.save(sink);
    const bytes = sink.toBytes();
    await using adapted = await loadModel(hf(), { backend, maxSessions: 1, lora: { adapters: [{ source: folder }] } });
    await expect(adapted.restoreSession(memorySource(bytes))).rejects.toThrow(FormatError);
    await using merged = await loadModel(hf(), {
      backend,
      maxSessions: 1,
      lora: { adapters: [{ source: folder }], mode: 'merge' },
    });
    await expect(merged.restoreSession(memorySource(bytes))).rejects.toThrow(FormatError);
  });
});

describe.skipIf(llama === undefined)(`invalid adapters${needs}`, () => {
  test.each<[string, () => Promise<ModelLocation>, RegExp]>([
    [
      'another size',
      () => peftFolder(pairsFor({ 'model.layers.0.self_attn.q_proj': [48, 64, 4] }), { r: 4 }),
      /expected 64 outputs/,
    ],
    [
      'no such module',
      () => peftFolder(pairsFor({ 'model.layers.9.self_attn.q_proj': [64, 64, 4] }), { r: 4 }),
      /no such matrix/,
    ],
    ['another rank', () => peftFolder(llamaPairs, { r: 8 }), /r of .*expected [24], got 8/],
    ['DoRA', () => peftFolder(llamaPairs, { r: 4, use_dora: true }), /use_dora: expected false/],
    ['trained modules', () => peftFolder(llamaPairs, { r: 4, modules_to_save: ['lm_head'] }), /modules_to_save/],
    ['another kind', () => peftFolder(llamaPairs, { peft_type: 'IA3', r: 4 }), /peft_type: expected LORA/],
    ['an embedding', () => peftFolder(pairsFor({ 'model.embed_tokens': [320, 64, 4] }), { r: 4 }), /not supported/],
    ['a model', async () => memorySource(await ggufAdapter(new Map(), 1, { 'general.type': 'model' })), /general.type/],
    ['no tensors', async () => memorySource(await ggufAdapter(new Map(), 1)), /at least one pair/],
  ])('rejects %s', async (_, source, message) => {
    const adapters = [{ source: await source() }];
    await expect(loadModel(hf(), { backend, lora: { adapters } })).rejects.toThrow(FormatError);
    await expect(loadModel(hf(), { backend, lora: { adapters: [{ source: await source() }] } })).rejects.toThrow(
      message,
    );
  });
});

/** Fused matrices; attention with biases and learned sinks, latents, partial rotation or norms; experts after it; keys that are shared. */
const others = {
  phi3: { 'model.layers.0.self_attn.qkv_proj': [192, 64, 4], 'model.layers.1.mlp.gate_up_proj': [192, 64, 4] },
  'gpt-oss': { 'model.layers.0.self_attn.q_proj': [48, 32, 4], 'model.layers.1.self_attn.o_proj': [32, 48, 4] },
  granitemoe: { 'model.layers.0.self_attn.q_proj': [32, 32, 4], 'model.layers.1.self_attn.v_proj': [16, 32, 4] },
  ministral3: { 'model.layers.0.self_attn.q_proj': [24, 32, 4], 'model.layers.1.self_attn.k_proj': [12, 32, 4] },
  llama4: { 'model.layers.0.self_attn.q_proj': [24, 16, 4], 'model.layers.0.feed_forward.up_proj': [64, 16, 4] },
  granitehybrid: { 'model.layers.0.mamba.in_proj': [164, 32, 4], 'model.layers.1.self_attn.k_proj': [16, 32, 4] },
  qwen3next: { 'model.layers.1.self_attn.q_proj': [48, 32, 4], 'model.layers.1.self_attn.o_proj': [32, 24, 4] },
  mamba: { 'backbone.layers.0.mixer.x_proj': [19, 64, 4], 'backbone.layers.1.mixer.dt_proj': [64, 3, 4] },
  'mamba2-groups': { 'backbone.layers.0.mixer.in_proj': [200, 32, 4], 'backbone.layers.1.mixer.out_proj': [32, 64, 4] },
  smollm3: { 'model.layers.0.self_attn.q_proj': [16, 16, 4], 'model.layers.1.self_attn.k_proj': [8, 16, 4] },
  glm4moe: { 'model.layers.0.self_attn.q_proj': [24, 32, 4], 'model.layers.1.self_attn.o_proj': [32, 24, 4] },
  deepseek2: { 'model.layers.0.mlp.up_proj': [48, 32, 4], 'model.layers.1.self_attn.o_proj': [32, 40, 4] },
  olmo3: { 'model.layers.0.self_attn.k_proj': [16, 32, 4], 'model.layers.1.mlp.down_proj': [32, 128, 4] },
  gemma4: { 'model.layers.3.self_attn.k_proj': [16, 16, 4], 'model.layers.4.mlp.down_proj': [16, 64, 4] },
  'gemma4-moe': { 'model.layers.2.self_attn.k_proj': [16, 16, 4], 'model.layers.1.mlp.down_proj': [16, 32, 4] },
  gemma3n: { 'model.layers.1.laurel.linear_left': [8, 16, 4], 'model.layers.5.per_layer_input_gate': [4, 16, 4] },
} as const;

describe.each(Object.entries(others))('adapters on %s', (name, modules) => {
  const isMissing = archPath(name, 'model.gguf') === undefined;
  test.skipIf(isMissing)(`of both formats${isMissing ? needs : ''}`, async () => {
    await expectMerged(name, ['hf', 'model.gguf'], pairsFor(modules));
  });
});

describe('adapters on recurrent layers', () => {
  const pairs = pairsFor({
    'model.layers.0.linear_attn.in_proj_qkvz': [128, 32, 4],
    'model.layers.0.linear_attn.in_proj_ba': [8, 32, 4],
    'model.layers.0.linear_attn.out_proj': [32, 48, 4],
  });

  test('of Qwen3-Next, with the rows of the fused projections', async () => {
    await expectMerged('qwen3next', ['hf', 'model.gguf'], pairs);
  });

  test('of Qwen3-Next, as a GGUF file', async () => {
    const names = ['ssm_in', 'ssm_ba', 'ssm_out'].map((name) => `blk.0.${name}`);
    const renamed = new Map([...pairs.values()].map((pair, index) => [names[index] as string, pair]));
    await expectMerged('qwen3next', ['hf', 'model.gguf'], pairs, async () =>
      memorySource(await ggufAdapter(renamed, 4)),
    );
  });

  const isMissing = archPath('qwen35', 'hf') === undefined;
  test.skipIf(isMissing)(`of Qwen 3.5 have the format of the model${isMissing ? needs : ''}`, async () => {
    const [layer, module] = ['blk.0.ssm_out', 'model.layers.0.linear_attn.out_proj'];
    const own = pairsFor({ [module]: [48, 64, 4] });
    const gguf = memorySource(await ggufAdapter(new Map([[layer, own.get(module) as Pair]]), 4));
    const cases = [['hf', 'safetensors', gguf] as const, ['model.gguf', 'gguf', await peftOf(own)] as const];
    for (const [file, format, source] of cases) {
      const adapted = logprobs(archPath('qwen35', file) as string, { lora: { adapters: [{ source }] } });
      await expect(adapted).rejects.toThrow(`expected an adapter of the format ${format}, whose heads`);
    }
  });
});

test.each([
  // of Gemma 3n as transformers 4 loads it: layers that share keys have matrices for these nevertheless
  ['gemma4', { 'model.layers.4.self_attn.k_proj': [8, 16, 4], 'model.layers.5.self_attn.v_proj': [16, 16, 4] }],
  ['gemma3n', { 'model.language_model.layers.5.self_attn.k_proj': [8, 16, 4] }],
] as const)('parts of adapters on %s that have no effect are ignored with a notice', async (name, unused) => {
  const used = pairsFor({ 'model.layers.4.mlp.down_proj': [16, name === 'gemma4' ? 64 : 48, 4] });
  const pairs = new Map([...used, ...pairsFor(unused)]);
  const source = await peftOf(pairs);
  await expectMerged(name, ['hf', 'model.gguf'], used, async () => source);
  for (const file of ['hf', 'model.gguf']) {
    const lora = { adapters: [{ source }] };
    await using model = await loadModel(archPath(name, file) as string, { backend, lora });
    expect(model.notices.join()).toContain(`${Object.keys(unused).length} of ${pairs.size} matrices of the adapter`);
  }
});

test('an adapter of Falcon-H1 has the format of the model, whose factors only folders declare', async () => {
  const pairs = pairsFor({
    'model.layers.0.mamba.in_proj': [116, 24, 4],
    'model.layers.1.self_attn.k_proj': [12, 24, 4],
  });
  await expectMerged('falcon-h1', ['hf'], pairs);
  const adapters = [{ source: await peftOf(pairs) }];
  const refused = logprobs(archPath('falcon-h1', 'model.gguf') as string, { lora: { adapters } });
  await expect(refused).rejects.toThrow('expected an adapter of the format gguf');
});
