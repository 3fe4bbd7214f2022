/** BERT and Llama as ONNX exports with the weights of the goldens, against onnxruntime and against the folders. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { localFolder } from '@winnow/hub/node';
import { writeOnnx, type OnnxNodeInput, type OnnxTensorInput } from '@winnow/onnx/testing';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { openSafetensors } from '@winnow/safetensors';
import { FormatError } from '@winnow/tensor';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { loadEmbeddingModel, loadModel } from '../../src/index.js';
import { archPath, maxDifference } from '../support/golden-files.js';

let backend: Backend;
let folder: string;
beforeAll(() => (backend = createReferenceBackend()));
afterAll(() => backend.dispose());
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'winnow-onnx-'))));
afterEach(() => rmSync(folder, { recursive: true }));

type Values = Map<string, { readonly shape: readonly number[]; readonly values: Float32Array }>;

async function weightsOf(name: string): Promise<Values> {
  const files = localFolder(archPath(name, 'hf') as string);
  const store = await openSafetensors(await files.open('model.safetensors'));
  const found: Values = new Map();
  for (const [key, tensor] of store.tensors) {
    const bytes = new Uint8Array(tensor.sizeBytes);
    await tensor.read(bytes);
    found.set(key, { shape: tensor.shape, values: new Float32Array(bytes.buffer) });
  }
  await store.close();
  return found;
}

const bytesOf = (view: ArrayBufferView): Uint8Array => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
const f32 = (name: string, dims: readonly number[], values: Float32Array): OnnxTensorInput => ({
  name,
  type: 1,
  dims,
  data: bytesOf(values),
});

function transpose({
  shape,
  values,
}: {
  readonly shape: readonly number[];
  readonly values: Float32Array;
}): Float32Array {
  const [rows, columns] = shape as [number, number];
  return Float32Array.from({ length: values.length }, (_, i) => values[(i % rows) * columns + Math.floor(i / rows)]!);
}

/** A matrix as onnxruntime's quantizer stores it: int8 values, one scale. */
function quantized(base: string, values: Float32Array, dims: readonly number[]): OnnxTensorInput[] {
  const scale = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 127;
  const codes = Int8Array.from(values, (value) => Math.round(value / scale));
  return [
    { name: `${base}_quantized`, type: 3, dims, data: bytesOf(codes) },
    f32(`${base}_scale`, [1], Float32Array.of(scale)),
    { name: `${base}_zero_point`, type: 3, dims: [1], data: new Uint8Array(1) },
  ];
}

/** Nodes of a graph as exporters write them: named biases and norms, anonymous transposed matrices. */
class GraphWriter {
  readonly nodes: OnnxNodeInput[] = [];
  readonly initializers: OnnxTensorInput[] = [];
  readonly #weights: Values;
  readonly #isQuantized: boolean;
  #numOutputs = 0;

  constructor(weights: Values, isQuantized: boolean) {
    this.#weights = weights;
    this.#isQuantized = isQuantized;
  }

  node(op: string, inputs: string[], attributes: OnnxNodeInput['attributes'] = {}, name = ''): string {
    const output = `t${this.#numOutputs++}`;
    this.nodes.push({ op, inputs, outputs: [output], attributes, name });
    return output;
  }

  #addOnce(tensor: OnnxTensorInput): string {
    if (!this.initializers.some(({ name }) => name === tensor.name)) this.initializers.push(tensor);
    return tensor.name;
  }

  constant(name: string, value: number | number[]): string {
    if (typeof value === 'number') return this.#addOnce(f32(name, [], Float32Array.of(value)));
    return this.#addOnce({ name, type: 7, dims: [value.length], data: bytesOf(BigInt64Array.from(value, BigInt)) });
  }

  named(name: string): string {
    const { shape, values } = this.#weights.get(name)!;
    return this.#addOnce(f32(name, shape, values));
  }

  linear(module: string, x: string): string {
    const weight = this.#weights.get(`${module}.weight`)!;
    const dims = weight.shape.toReversed();
    const base = `onnx::MatMul_${this.initializers.length}`;
    const path = `/${module.replaceAll('.', '/').replace(/layer\/(\d+)/, 'layer.$1')}/MatMul`;
    let matrix = base;
    if (this.#isQuantized) {
      this.initializers.push(...quantized(base, transpose(weight), dims));
      matrix = this.node('DequantizeLinear', [`${base}_quantized`, `${base}_scale`, `${base}_zero_point`]);
    } else this.initializers.push(f32(base, dims, transpose(weight)));
    return this.node('Add', [this.named(`${module}.bias`), this.node('MatMul', [x, matrix], {}, path)]);
  }

  norm(module: string, x: string, eps: number): string {
    const inputs = [x, this.named(`${module}.weight`), this.named(`${module}.bias`)];
    return this.node('LayerNormalization', inputs, { axis: -1, epsilon: { float: eps } });
  }

  gelu(x: string): string {
    const cube = this.node('Mul', [this.node('Mul', [x, x]), x]);
    const inner = this.node('Add', [x, this.node('Mul', [cube, this.constant('c0', 0.044715)])]);
    const tanh = this.node('Tanh', [this.node('Mul', [inner, this.constant('c1', Math.sqrt(2 / Math.PI))])]);
    const half = this.node('Mul', [x, this.constant('half', 0.5)]);
    return this.node('Mul', [half, this.node('Add', [tanh, this.constant('one', 1)])]);
  }

  table(name: string, ids: string): string {
    return this.node('Gather', [this.named(`embeddings.${name}.weight`), ids], { axis: 0 });
  }
}

interface BertConfig {
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly layer_norm_eps: number;
}

function bertLayer(writer: GraphWriter, x: string, own: string, config: BertConfig, headDim: number): string {
  const { num_attention_heads: numHeads, layer_norm_eps: eps } = config;
  const heads = (which: string, perm: number[]): string => {
    const flat = writer.linear(`${own}.attention.self.${which}`, x);
    const split = writer.node('Reshape', [flat, writer.constant('heads', [0, 0, numHeads, headDim])]);
    return writer.node('Transpose', [split], { perm });
  };
  const logits = writer.node('MatMul', [heads('query', [0, 2, 1, 3]), heads('key', [0, 2, 3, 1])]);
  const scaled = writer.node('Mul', [logits, writer.constant('scale', 1 / Math.sqrt(headDim))]);
  const weights = writer.node('Softmax', [scaled], { axis: -1 });
  const perm = [0, 2, 1, 3];
  const mixed = writer.node('Transpose', [writer.node('MatMul', [weights, heads('value', perm)])], { perm });
  const flat = writer.node('Reshape', [mixed, writer.constant('flat', [0, 0, -1])]);
  const attended = writer.node('Add', [writer.linear(`${own}.attention.output.dense`, flat), x]);
  const middle = writer.norm(`${own}.attention.output.LayerNorm`, attended, eps);
  const up = writer.gelu(writer.linear(`${own}.intermediate.dense`, middle));
  return writer.norm(
    `${own}.output.LayerNorm`,
    writer.node('Add', [writer.linear(`${own}.output.dense`, up), middle]),
    eps,
  );
}

function bertGraph(weights: Values, isQuantized: boolean, config: BertConfig) {
  const writer = new GraphWriter(weights, isQuantized);
  const words = writer.table('word_embeddings', 'input_ids');
  const types = writer.node('Add', [words, writer.table('token_type_embeddings', 'token_type_ids')]);
  const sum = writer.node('Add', [types, writer.table('position_embeddings', 'position_ids')]);
  let x = writer.norm('embeddings.LayerNorm', sum, config.layer_norm_eps);
  const hiddenDim = weights.get('embeddings.LayerNorm.weight')!.shape[0]!;
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    x = bertLayer(writer, x, `encoder.layer.${layer}`, config, hiddenDim / config.num_attention_heads);
  }
  const { nodes, initializers } = writer;
  nodes.push({ op: 'Identity', inputs: [x], outputs: ['last_hidden_state'] });
  const inputs = ['input_ids', 'token_type_ids', 'position_ids'].map((name) => [name, 7, ['b', 's']] as const);
  return { nodes, initializers, inputs, outputs: [['last_hidden_state', 1, ['b', 's', hiddenDim]]] as const };
}

const bert = archPath('bert-mean', 'hf');
const tokens = [2, 17, 40, 99, 150, 7, 31, 3];
test.skipIf(bert === undefined).each([false, true])(
  'BERT, quantized: %s, as onnxruntime computes it (needs ../shared/data/goldens)',
  async (isQuantized) => {
    const config = JSON.parse(readFileSync(join(bert as string, 'config.json'), 'utf8')) as BertConfig;
    const graph = bertGraph(await weightsOf('bert-mean'), isQuantized, config);
    const bytes = writeOnnx(graph);
    mkdirSync(join(folder, 'onnx'));
    const file = join(folder, 'onnx', isQuantized ? 'model_quantized.onnx' : 'model.onnx');
    writeFileSync(file, bytes);
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
    const session = await InferenceSession.create(bytes);
    const ids = (values: number[]): Tensor =>
      new Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);
    const { last_hidden_state: output } = await session.run({
      input_ids: ids(tokens),
      token_type_ids: ids(tokens.map(() => 0)),
      position_ids: ids(tokens.map((_, index) => index)),
    });
    const hidden = output!.data as Float32Array;
    const size = hidden.length / tokens.length;
    const mean = Float32Array.from(
      { length: size },
      (_, i) => tokens.reduce((sum, _token, at) => sum + hidden[at * size + i]!, 0) / tokens.length,
    );
    for (const location of [folder, file]) {
      await using model = await loadEmbeddingModel(location, { backend, pooling: 'mean' });
      const [vector] = await model.embed([tokens], { normalize: false });
      expect(maxDifference(vector!, mean)).toBeLessThan(1e-4);
      if (isQuantized) continue;
      await using original = await loadEmbeddingModel(bert as string, { backend, pooling: 'mean' });
      const [expected] = await original.embed([tokens], { normalize: false });
      expect(maxDifference(vector!, expected!)).toBeLessThan(1e-5);
    }
    // quantized again to Winnow's blocks while loading
    await using small = await loadEmbeddingModel(folder, { backend, pooling: 'mean', quantize: 'q8_0' });
    expect(maxDifference((await small.embed([tokens], { normalize: false }))[0]!, mean)).toBeLessThan(0.1);
  },
);

const llama = archPath('llama', 'hf');
test.skipIf(llama === undefined)(
  'a decoder whose initializers are its weights (needs ../shared/data/goldens)',
  async () => {
    const weights = await weightsOf('llama');
    const initializers: OnnxTensorInput[] = [];
    const nodes: OnnxNodeInput[] = [];
    for (const [name, tensor] of weights) {
      const isProduct = tensor.shape.length === 2 && name !== 'model.embed_tokens.weight';
      if (!isProduct) {
        initializers.push(f32(name, tensor.shape, tensor.values));
        continue;
      }
      const path = name
        .replace(/\.weight$/, '')
        .replaceAll('.', '/')
        .replace(/layers\/(\d+)/, 'layers.$1');
      const matrix = `onnx::MatMul_${initializers.length}`;
      initializers.push(f32(matrix, tensor.shape.toReversed(), transpose(tensor)));
      nodes.push({
        op: 'MatMul',
        name: `/${path}/MatMul`,
        inputs: [`x${nodes.length}`, matrix],
        outputs: [`y${nodes.length}`],
      });
    }
    const bytes = writeOnnx({ nodes, initializers, inputs: [], outputs: [] });
    writeFileSync(join(folder, 'model.onnx'), bytes);
    writeFileSync(join(folder, 'config.json'), readFileSync(join(llama as string, 'config.json')));
    await using model = await loadModel(folder, { backend, maxSessions: 1 });
    await using original = await loadModel(llama as string, { backend, maxSessions: 1 });
    expect(await model.logprobs(tokens)).toEqual(await original.logprobs(tokens));

    writeFileSync(join(folder, 'model.onnx'), bytes.slice(0, bytes.length - 1000));
    await expect(loadModel(folder, { backend })).rejects.toThrow(FormatError);
  },
);
