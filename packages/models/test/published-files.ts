/** Files of published models: their settings, with tensors of the right names and shapes and no data. */
import type { StoredTensor } from '@winnow/bytes';
import { validateProgram } from '@winnow/ops';
import { tensorBytes, type Shape } from '@winnow/tensor';
import { expect } from 'vitest';
import { describeModel, Fields, type ModelFile } from '../src/index.js';

export type Shapes = Record<string, Shape>;

export interface Published {
  readonly name: string;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly outer: Shapes;
  readonly layer: Shapes;
  readonly layerPrefix?: string;
  /** Number of parameters on the model card, the sum over the tensors. */
  readonly numParameters: number;
  readonly expected: Readonly<Record<string, unknown>>;
}

export const linear = (name: string, numOutputs: number, numInputs: number, hasBias = false): Shapes => ({
  [`${name}.weight`]: [numOutputs, numInputs],
  ...(hasBias ? { [`${name}.bias`]: [numOutputs] } : {}),
});
export const norms = (names: readonly string[], size: number, hasBias = false): Shapes =>
  Object.fromEntries(
    names.flatMap((name) => (hasBias ? ['weight', 'bias'] : ['weight']).map((part) => [`${name}.${part}`, [size]])),
  );
export const attention = (hidden: number, query: number, keyValue: number, bias = '', output = 'o_proj'): Shapes => ({
  ...linear('self_attn.q_proj', query, hidden, bias.includes('q')),
  ...linear('self_attn.k_proj', keyValue, hidden, bias.includes('k')),
  ...linear('self_attn.v_proj', keyValue, hidden, bias.includes('v')),
  ...linear(`self_attn.${output}`, hidden, query, bias.includes('o')),
});
export const gated = (hidden: number, ffn: number): Shapes => ({
  ...linear('mlp.gate_proj', ffn, hidden),
  ...linear('mlp.up_proj', ffn, hidden),
  ...linear('mlp.down_proj', hidden, ffn),
});
export const outer = (vocab: number, hidden: number, isTied: boolean, hasBias = false): Shapes => ({
  'model.embed_tokens.weight': [vocab, hidden],
  ...norms(['model.norm'], hidden, hasBias),
  ...(isTied ? {} : { 'lm_head.weight': [vocab, hidden] }),
});
export const twoNorms: readonly string[] = ['input_layernorm', 'post_attention_layernorm'];
export const fourNorms: readonly string[] = [...twoNorms, 'pre_feedforward_layernorm', 'post_feedforward_layernorm'];

export function fileOf({ settings, outer: shapes, layer, layerPrefix = 'model.layers' }: Published): ModelFile {
  const tensors = new Map<string, StoredTensor>();
  const add = (name: string, shape: Shape): void => {
    const read = (): Promise<void> => Promise.reject(new Error('describing a model reads no data'));
    tensors.set(name, { name, dtype: 'bf16', shape, sizeBytes: tensorBytes('bf16', shape), read });
  };
  for (const [name, shape] of Object.entries(shapes)) add(name, shape);
  const text = (settings['text_config'] ?? settings) as Published['settings'];
  const numLayers = (text['num_hidden_layers'] ?? text['n_layer']) as number;
  for (let index = 0; index < numLayers; index++) {
    for (const [name, shape] of Object.entries(layer)) add(`${layerPrefix}.${index}.${name}`, shape);
  }
  const store = { name: 'model.safetensors', tensors, close: async () => undefined };
  return { format: 'safetensors', fields: Fields.ofJson('config.json', settings), store };
}

const capacities = {
  maxTokens: 64,
  maxSequences: 1,
  maxOutputRows: 16,
  cache: { numBlocks: 8, blockSize: 64, maxBlocksPerSequence: 8, dtype: { keys: 'f16', values: 'f16' } },
  topK: 64,
} as const;

/** Checks the config, the number of parameters, and that the program is valid and uses every weight. */
export async function expectPublished(model: Published): Promise<void> {
  const description = await describeModel(fileOf(model));
  expect(description.config).toMatchObject(model.expected);
  const shapes = [...description.weights.values()].map(({ shape }) => shape);
  const numParameters = shapes.reduce((sum, shape) => sum + shape.reduce((product, dim) => product * dim, 1), 0);
  expect(numParameters).toBe(model.numParameters);
  const program = description.buildProgram(capacities);
  expect(() => validateProgram(program)).not.toThrow();
  const names = new Set(program.buffers.map(({ name }) => name));
  expect([...description.weights.keys()].filter((name) => !names.has(name))).toEqual([]); // every weight is used
}
