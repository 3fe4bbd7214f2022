/**
 * Attention of Gemma 3n and 4: RMS norms of the heads of q and k before the rotation and of v without weights, no scale, and last
 * layers that attend to the keys and values of earlier ones.
 */
import type { ProgramTensor } from '@winnow/ops';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import { headDimsOf, kvHeadsOf, kvLayerOf, windowOf, type DecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { settingBias, tensorNames } from '../program/tensors.js';
import { linear, rmsNorm } from './decoder-blocks.js';
import type { Rotary } from './rotary.js';

/** Layers without a matrix of values use their keys before the norm. */
export function normedAttention(step: DecoderStep, layer: number, x: ProgramTensor, rotary: Rotary): ProgramTensor {
  const { b, config, positions } = step;
  const { numKvHeads, headDim } = kvHeadsOf(config, layer);
  const own = `blk.${layer}`;
  const heads = (name: string, count: number): ProgramTensor =>
    b.reshape(linear(step, `${own}.${name}`, x), ['T', count, headDim]);
  const storedKeys = (): Record<'k' | 'v', ProgramTensor> => {
    const keys = heads('attn_k', numKvHeads);
    const values = step.hasWeight(`${own}.attn_v.weight`) ? heads('attn_v', numKvHeads) : keys;
    const ones = step.constant(onesName(headDim));
    return {
      k: rotary.rotate(step, rmsNorm(step, `${own}.attn_k_norm`, keys), positions),
      v: b.activation('rms-norm', { x: values, weight: ones }, { eps: config.normEps }),
    };
  };
  const query = rmsNorm(step, `${own}.attn_q_norm`, heads('attn_q', config.numHeads));
  const rotateQuery = (at: ProgramTensor): ProgramTensor => rotary.rotate(step, query, at);
  const q = rotateQuery(positions);
  const stored = kvLayerOf(config, layer) === layer ? storedKeys() : {};
  const y = step.attend(layer, { q, ...stored, scale: 1, window: windowOf(config, layer), rotateQuery });
  return linear(step, `${own}.attn_output`, b.reshape(y, ['T', config.numHeads * headDim]));
}

/** Name of the table of ones that a norm without weights needs. */
export function onesName(size: number): string {
  return `ones.${size}`;
}

/** The tables for norms without weights over these sizes. */
export function onesOf(sizes: readonly number[]): [name: string, values: Float32Array][] {
  return sizes.map((size) => [onesName(size), new Float32Array(size).fill(1)]);
}

/** The tables that the norm of values needs. */
export function valueNormTables(config: DecoderConfig): [name: string, values: Float32Array][] {
  return onesOf(headDimsOf(config));
}

/** @param hasValues whether the layer has a matrix of values, if it has keys */
export function* normedAttentionTensors(
  file: ModelFile,
  config: DecoderConfig,
  layer: number,
  hasValues: boolean,
): Generator<WeightRequest> {
  const { hiddenDim, numHeads } = config;
  const { numKvHeads, headDim } = kvHeadsOf(config, layer);
  const names = tensorNames(file);
  const bias = settingBias(file, 'attention_bias');
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}.self_attn`];
  const [queryDim, keyDim] = [numHeads * headDim, numKvHeads * headDim];
  yield* names.matrix([`${own}.attn_q`, `${hub}.q_proj`], [queryDim, hiddenDim], bias);
  yield* names.norm([`${own}.attn_q_norm`, `${hub}.q_norm`], headDim, 'none');
  yield* names.matrix([`${own}.attn_output`, `${hub}.o_proj`], [hiddenDim, queryDim], bias);
  if (kvLayerOf(config, layer) !== layer) return;
  yield* names.matrix([`${own}.attn_k`, `${hub}.k_proj`], [keyDim, hiddenDim], bias);
  yield* names.norm([`${own}.attn_k_norm`, `${hub}.k_norm`], headDim, 'none');
  if (hasValues) yield* names.matrix([`${own}.attn_v`, `${hub}.v_proj`], [keyDim, hiddenDim], bias);
}

/**
 * For each layer the one whose keys it attends to: the last `numShared` layers those of the last earlier layer of their type.
 * @returns `undefined` without such an earlier layer
 */
export function sharedKvLayers(windowedLayers: readonly boolean[], numShared: number): number[] | undefined {
  const firstShared = windowedLayers.length - numShared;
  const kvLayers = windowedLayers.map((isWindowed, layer) =>
    layer < firstShared ? layer : windowedLayers.lastIndexOf(isWindowed, firstShared - 1),
  );
  return firstShared <= 0 || kvLayers.includes(-1) ? undefined : kvLayers;
}
