/** Writes GGUF files of models with random weights. Their output is noise, but their speed is realistic. */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileSink } from '@winnow/bytes/node';
import { writeGguf, type GgufTensorInput, type GgufValueInput } from '@winnow/gguf';
import { createRng, dtypeInfo, sizeOf, type DType } from '@winnow/tensor';
import type { ModelShape } from './model-shapes.js';
import { randomScales, randomWeights, type RandomWeights } from './random-weights.js';
import { syntheticVocabulary } from './synthetic-vocabulary.js';

/** Part of the file name: change it when the contents change. */
const recipe = 'r2';
const contextLength = 131072;
const normEps = 1e-5;

/**
 * The path of the model's file in `folder`, which is written if missing.
 * @param attentionGain of the matrix after attention: a small one makes the output depend less on which keys are visited, so that
 *   drafts under a sparse policy may be accepted: 65 % at 200,000 tokens and none at 65,536 (docs/benchmarks/speculation.md)
 */
export async function syntheticModel(
  shape: ModelShape,
  dtype: DType,
  folder: string,
  say: (text: string) => void,
  attentionGain = 1,
): Promise<string> {
  const gain = attentionGain === 1 ? '' : `-gain${attentionGain}`;
  const path = join(folder, `${shape.name}-${dtype}${gain}-${recipe}.gguf`);
  if (existsSync(path)) return path;
  await mkdir(folder, { recursive: true });
  const tensors = [...tensorsOf(shape, dtype, attentionGain)];
  const sizeBytes = tensors.reduce((sum, tensor) => sum + tensorSize(tensor), 0);
  say(`writing ${path}, ${(sizeBytes / 1e6).toFixed(0)} MB`);
  await writeGguf(await fileSink(path), { metadata: metadataOf(shape, dtype), tensors });
  return path;
}

function tensorSize({ dtype, shape }: GgufTensorInput): number {
  return sizeOf(
    dtype,
    shape.reduce((product, dim) => product * dim, 1),
  );
}

/** The tensors of the file: llama.cpp stores the output matrix of low-bit models with 6 bits. */
function outputDType(dtype: DType): DType {
  return dtype === 'q4_0' || dtype === 'q4_K' || dtype === 'q5_K' ? 'q6_K' : dtype;
}

/**
 * Formats whose blocks do not divide the rows are replaced by the next larger format with blocks of 32, as in
 * llama.cpp.
 */
function fitting(dtype: DType, rowLength: number): DType {
  if (rowLength % dtypeInfo(dtype).blockSize === 0) return dtype;
  const larger: Partial<Record<DType, DType>> = { q4_K: 'q5_0', q5_K: 'q5_1', q6_K: 'q8_0' };
  const found = larger[dtype];
  if (found === undefined) throw new Error(`rows of ${rowLength} cannot be stored as ${dtype}`);
  return found;
}

function* tensorsOf(shape: ModelShape, dtype: DType, attentionGain: number): Generator<GgufTensorInput> {
  const { vocabSize, hiddenDim, numLayers, numHeads, numKvHeads, headDim, ffnDim, isTied } = shape;
  const rng = createRng(vocabSize + numLayers);
  const pools = new Map<string, RandomWeights>();
  /** Outputs of the standard deviation `gain` for inputs of unit variance. */
  const matrix = (name: string, numOutputs: number, numInputs: number, wanted = dtype, gain = 1): GgufTensorInput => {
    const stored = fitting(wanted, numInputs);
    const key = `${stored} ${numInputs} ${gain}`;
    const pool = pools.get(key) ?? randomWeights(stored, gain / Math.sqrt(numInputs), pools.size + 1);
    pools.set(key, pool);
    const data = pool.parts(sizeOf(stored, numOutputs * numInputs));
    return { name: `${name}.weight`, dtype: stored, shape: [numOutputs, numInputs], data };
  };
  const norm = (name: string): GgufTensorInput => {
    const values = randomScales(rng, hiddenDim);
    return { name: `${name}.weight`, dtype: 'f32', shape: [hiddenDim], data: new Uint8Array(values.buffer) };
  };
  yield matrix('token_embd', vocabSize, hiddenDim, isTied ? outputDType(dtype) : dtype);
  yield norm('output_norm');
  if (!isTied) yield matrix('output', vocabSize, hiddenDim, outputDType(dtype));
  for (let layer = 0; layer < numLayers; layer++) {
    const block = `blk.${layer}`;
    yield norm(`${block}.attn_norm`);
    yield matrix(`${block}.attn_q`, numHeads * headDim, hiddenDim);
    yield matrix(`${block}.attn_k`, numKvHeads * headDim, hiddenDim);
    yield matrix(`${block}.attn_v`, numKvHeads * headDim, hiddenDim);
    yield matrix(`${block}.attn_output`, hiddenDim, numHeads * headDim, dtype, attentionGain);
    yield norm(`${block}.ffn_norm`);
    yield matrix(`${block}.ffn_gate`, ffnDim, hiddenDim);
    yield matrix(`${block}.ffn_up`, ffnDim, hiddenDim);
    yield matrix(`${block}.ffn_down`, hiddenDim, ffnDim);
  }
}

function metadataOf(shape: ModelShape, dtype: DType): Record<string, GgufValueInput> {
  const uint32 = (value: number): GgufValueInput => ({ type: 'uint32', value });
  const float32 = (value: number): GgufValueInput => ({ type: 'float32', value });
  const { texts, scores, types } = syntheticVocabulary(shape.vocabSize);
  return {
    'general.architecture': 'llama',
    'general.name': `${shape.name} with random weights, ${dtype}`,
    'llama.vocab_size': uint32(shape.vocabSize),
    'llama.context_length': uint32(contextLength),
    'llama.embedding_length': uint32(shape.hiddenDim),
    'llama.block_count': uint32(shape.numLayers),
    'llama.feed_forward_length': uint32(shape.ffnDim),
    'llama.attention.head_count': uint32(shape.numHeads),
    'llama.attention.head_count_kv': uint32(shape.numKvHeads),
    'llama.attention.key_length': uint32(shape.headDim),
    'llama.attention.value_length': uint32(shape.headDim),
    'llama.attention.layer_norm_rms_epsilon': float32(normEps),
    'llama.rope.dimension_count': uint32(shape.headDim),
    'llama.rope.freq_base': float32(shape.ropeBase),
    ...(shape.activation === undefined ? {} : { 'llama.hidden_act': shape.activation }),
    'tokenizer.ggml.model': 'llama',
    'tokenizer.ggml.tokens': texts,
    'tokenizer.ggml.scores': { type: 'array', elementType: 'float32', value: scores },
    'tokenizer.ggml.token_type': { type: 'array', elementType: 'int32', value: types },
    'tokenizer.ggml.unknown_token_id': uint32(0),
    'tokenizer.ggml.bos_token_id': uint32(1),
    'tokenizer.ggml.eos_token_id': uint32(2),
    'tokenizer.ggml.add_bos_token': true,
    'tokenizer.ggml.add_space_prefix': true,
  };
}
