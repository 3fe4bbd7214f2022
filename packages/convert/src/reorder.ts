/**
 * Layouts that differ between the formats: rotary pairs of Llama models, value heads of Qwen 3.5.
 */
import { gatheredRowsView, type EmbedderDescription, type Fields, type ModelFile, type Weight } from '@winnow/models';
import { gatheredColumnsView } from './views.js';

/** Reorders the weights of a description for the other format. */
export function reorderWeights(weights: Map<string, Weight>, file: ModelFile, description: EmbedderDescription): void {
  const { config } = description;
  if (config.neighborsInGguf === true) {
    const toNeighbors = file.format === 'safetensors';
    reorderRotary(weights, config.headDim, config.rope?.rotaryDim ?? config.headDim, toNeighbors);
  }
  if (config.architecture === 'qwen35' || config.architecture === 'qwen35moe') {
    reorderValueHeads(weights, deltaSizes(file, config.architecture), file.format === 'safetensors');
  }
}

function replaceRows(weights: Map<string, Weight>, name: string, rowOf: (row: number) => number): void {
  const weight = weights.get(name);
  if (weight === undefined) return;
  weights.set(name, { ...weight, stored: gatheredRowsView(weight.stored, weight.shape, rowOf) });
}

/**
 * Hugging Face checkpoints pair (i, i + n/2) within a head, some GGUF files (2i, 2i + 1): the rows of q and
 * k and their biases are permuted within each head.
 */
function reorderRotary(weights: Map<string, Weight>, headDim: number, rotaryDim: number, toNeighbors: boolean): void {
  const half = rotaryDim / 2;
  const rowOf = (row: number): number => {
    const at = row % headDim;
    if (at >= rotaryDim) return row;
    const from = toNeighbors ? (at % 2) * half + (at >> 1) : at < half ? 2 * at : 2 * (at - half) + 1;
    return row - at + from;
  };
  for (const name of [...weights.keys()])
    if (/\.attn_[qk]\.(weight|bias)$/.test(name)) replaceRows(weights, name, rowOf);
}

interface DeltaSizes {
  readonly numKeyHeads: number;
  readonly numValueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
}

function deltaSizes({ format, fields }: ModelFile, architecture: string): DeltaSizes {
  if (format === 'gguf') {
    const count = (name: string): number => fields.count(`${architecture}.ssm.${name}`);
    const [numValueHeads, keyDim] = [count('time_step_rank'), count('state_size')];
    const inner = fields.count(`${architecture}.ssm.inner_size`, numValueHeads * keyDim);
    return { numKeyHeads: count('group_count'), numValueHeads, keyDim, valueDim: inner / numValueHeads };
  }
  const text: Fields = fields;
  return {
    numKeyHeads: text.count('linear_num_key_heads', 16),
    numValueHeads: text.count('linear_num_value_heads', 32),
    keyDim: text.count('linear_key_head_dim', 128),
    valueDim: text.count('linear_value_head_dim', 128),
  };
}

/** Value head `h` belongs to key head `h mod k` in GGUF files, and to `floor(h / (v / k))` in folders. */
function reorderValueHeads(weights: Map<string, Weight>, sizes: DeltaSizes, toTiled: boolean): void {
  const { numKeyHeads, numValueHeads, keyDim, valueDim } = sizes;
  const perKey = numValueHeads / numKeyHeads;
  const headOf = (head: number): number =>
    toTiled
      ? (head % numKeyHeads) * perKey + Math.floor(head / numKeyHeads)
      : (head % perKey) * numKeyHeads + Math.floor(head / perKey);
  /** Runs of `length` rows per head, after `skipped` rows. */
  const moved =
    (length: number, skipped = 0) =>
    (row: number): number => {
      if (row < skipped) return row;
      const at = row - skipped;
      return skipped + headOf(Math.floor(at / length)) * length + (at % length);
    };
  const numKeyRows = 2 * numKeyHeads * keyDim;
  for (const name of [...weights.keys()]) {
    if (/\.(attn_qkv|ssm_conv1d)\.weight$/.test(name)) replaceRows(weights, name, moved(valueDim, numKeyRows));
    else if (name.endsWith('.attn_gate.weight')) replaceRows(weights, name, moved(valueDim));
    else if (/\.(ssm_alpha\.weight|ssm_beta\.weight|ssm_dt\.bias|ssm_a)$/.test(name))
      replaceRows(weights, name, moved(1));
    else if (name.endsWith('.ssm_out.weight')) {
      const weight = weights.get(name) as Weight;
      weights.set(name, { ...weight, dtype: 'f32', stored: gatheredColumnsView(weight.stored, moved(valueDim)) });
    }
  }
}
