/**
 * GGUF files of small hybrid models with random weights: mostly short convolutions, and a few attention layers with two
 * KV heads.
 */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileSink } from '@winnow/bytes/node';
import { writeGguf, type GgufTensorInput, type GgufValueInput } from '@winnow/gguf';
import { createRng } from '@winnow/tensor';
import { syntheticVocabulary } from './synthetic-vocabulary.js';

/** Part of the file name: change it when the contents change. */
const recipe = 'r1';
const contextLength = 2 ** 21;

export interface HybridShape {
  readonly hiddenDim: number;
  readonly ffnDim: number;
  readonly headDim: number;
  readonly numHeads: number;
  readonly numLayers: number;
  /** Attention layers. */
  readonly attending: readonly number[];
  readonly vocabSize: number;
}

/** All of them have two KV heads. */
export const numKvHeads = 2;

const numTaps = 3;

/** The path of the model's file in `folder`, which is written if missing. */
export async function hybridModel(shape: HybridShape, folder: string): Promise<string> {
  const { hiddenDim, headDim, numHeads, numLayers, attending } = shape;
  const name = `hybrid-${hiddenDim}-${numHeads}x${headDim}-${attending.length}of${numLayers}`;
  const path = join(folder, `${name}-${recipe}.gguf`);
  if (existsSync(path)) return path;
  await mkdir(folder, { recursive: true });
  await writeGguf(await fileSink(path), { metadata: metadataOf(shape, name), tensors: [...tensorsOf(shape)] });
  return path;
}

function* tensorsOf(shape: HybridShape): Generator<GgufTensorInput> {
  const { hiddenDim, ffnDim, headDim, numHeads, numLayers, attending, vocabSize } = shape;
  const rng = createRng(11);
  const tensor = (name: string, dims: number[], deviation: number, mean = 0): GgufTensorInput => {
    const size = dims.reduce((product, dim) => product * dim, 1);
    const values = Float32Array.from({ length: size }, () => mean + deviation * rng.nextGaussian());
    return { name: `${name}.weight`, dtype: 'f32', shape: dims, data: new Uint8Array(values.buffer) };
  };
  const matrix = (name: string, numOutputs: number, numInputs: number): GgufTensorInput =>
    tensor(name, [numOutputs, numInputs], 1 / Math.sqrt(numInputs));
  const norm = (name: string, size: number): GgufTensorInput => tensor(name, [size], 0.1, 1);
  yield matrix('token_embd', vocabSize, hiddenDim);
  yield norm('token_embd_norm', hiddenDim);
  for (let layer = 0; layer < numLayers; layer++) {
    const block = `blk.${layer}`;
    yield norm(`${block}.attn_norm`, hiddenDim);
    yield norm(`${block}.ffn_norm`, hiddenDim);
    if (attending.includes(layer)) {
      yield matrix(`${block}.attn_q`, numHeads * headDim, hiddenDim);
      yield matrix(`${block}.attn_k`, numKvHeads * headDim, hiddenDim);
      yield matrix(`${block}.attn_v`, numKvHeads * headDim, hiddenDim);
      yield matrix(`${block}.attn_output`, hiddenDim, numHeads * headDim);
      yield norm(`${block}.attn_q_norm`, headDim);
      yield norm(`${block}.attn_k_norm`, headDim);
    } else {
      yield matrix(`${block}.shortconv.in_proj`, 3 * hiddenDim, hiddenDim);
      yield matrix(`${block}.shortconv.out_proj`, hiddenDim, hiddenDim);
      yield tensor(`${block}.shortconv.conv`, [hiddenDim, numTaps], 0.5);
    }
    yield matrix(`${block}.ffn_gate`, ffnDim, hiddenDim);
    yield matrix(`${block}.ffn_up`, ffnDim, hiddenDim);
    yield matrix(`${block}.ffn_down`, hiddenDim, ffnDim);
  }
}

function metadataOf(shape: HybridShape, name: string): Record<string, GgufValueInput> {
  const { hiddenDim, ffnDim, headDim, numHeads, numLayers, attending, vocabSize } = shape;
  const uint32 = (value: number): GgufValueInput => ({ type: 'uint32', value });
  const { texts, scores, types } = syntheticVocabulary(vocabSize);
  const kvHeads = Array.from({ length: numLayers }, (_, layer) => (attending.includes(layer) ? numKvHeads : 0));
  return {
    'general.architecture': 'lfm2',
    'general.name': `${name} with random weights`,
    'lfm2.vocab_size': uint32(vocabSize),
    'lfm2.context_length': uint32(contextLength),
    'lfm2.embedding_length': uint32(hiddenDim),
    'lfm2.block_count': uint32(numLayers),
    'lfm2.feed_forward_length': uint32(ffnDim),
    'lfm2.attention.head_count': uint32(numHeads),
    'lfm2.attention.head_count_kv': { type: 'array', elementType: 'int32', value: kvHeads },
    'lfm2.attention.key_length': uint32(headDim),
    'lfm2.attention.value_length': uint32(headDim),
    'lfm2.attention.layer_norm_rms_epsilon': { type: 'float32', value: 1e-5 },
    'lfm2.rope.dimension_count': uint32(headDim),
    'lfm2.rope.freq_base': { type: 'float32', value: 1e6 },
    'lfm2.shortconv.l_cache': uint32(numTaps),
    'tokenizer.ggml.model': 'llama',
    'tokenizer.ggml.tokens': texts,
    'tokenizer.ggml.scores': { type: 'array', elementType: 'float32', value: scores },
    'tokenizer.ggml.token_type': { type: 'array', elementType: 'int32', value: types },
    'tokenizer.ggml.unknown_token_id': uint32(0),
    'tokenizer.ggml.bos_token_id': uint32(1),
    'tokenizer.ggml.eos_token_id': uint32(2),
  };
}
