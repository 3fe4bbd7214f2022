/**
 * AltUp (arXiv:2301.13310) as Gemma 3n has it: several streams of hidden states, `[T, S * E]`, of which layers compute one. A layer
 * predicts all streams as mixtures of the streams, and corrects the predictions by what it adds to that of the active stream.
 */
import type { ProgramTensor } from '@winnow/ops';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { tensorNames } from '../program/tensors.js';
import { add, linear, rmsNorm, scaled } from './decoder-blocks.js';
import { onesName } from './normed-attention.js';

export interface StreamSizes {
  readonly numStreams: number;
  /** The stream that layers compute. */
  readonly active: number;
}

/** Only keeps norms of zeros finite. */
const tinyEps = 1e-12;

function columns({ b }: DecoderStep, x: ProgramTensor, begin: number, length: number): ProgramTensor {
  return b.activation('slice-columns', { x }, { begin, length });
}

/** The streams of stacked hidden states. */
function streamsOf(step: DecoderStep, x: ProgramTensor, { numStreams }: StreamSizes): ProgramTensor[] {
  const { hiddenDim } = step.config;
  return Array.from({ length: numStreams }, (_, index) => columns(step, x, index * hiddenDim, hiddenDim));
}

/** Streams side by side. */
function stacked(step: DecoderStep, streams: readonly ProgramTensor[]): ProgramTensor {
  const { b, config } = step;
  const length = streams.length * config.hiddenDim;
  const placed = streams.map((x, index) =>
    b.activation('slice-columns', { x }, { begin: -index * config.hiddenDim, length, pads: true }),
  );
  return placed.reduce((sum, each) => add(step, sum, each));
}

/** Rows divided by the root of their mean square. */
function unit({ b, config, constant }: DecoderStep, x: ProgramTensor): ProgramTensor {
  return b.activation('rms-norm', { x, weight: constant(onesName(config.hiddenDim)) }, { eps: tinyEps });
}

/** The mean of rows: `[..., 1]`. */
export function meanOf(step: DecoderStep, x: ProgramTensor): ProgramTensor {
  const { b, constant } = step;
  const length = Number(x.shape.at(-1));
  const weight = b.reshape(constant(onesName(length)), [1, length]);
  return scaled(step, b.activation('matmul', { x, weight }), 1 / length);
}

/** The rows of `others`, each with the root mean square of the row of `x`. */
function asLongAs(step: DecoderStep, x: ProgramTensor, others: readonly ProgramTensor[]): ProgramTensor[] {
  const { b } = step;
  const scales = meanOf(step, b.activation('multiply', { a: x, b: unit(step, x) }));
  return others.map((other) => b.activation('scale-rows', { x: unit(step, other), scales }));
}

/** The product of a stream with the matrix of the others with this index. */
function projected({ b, weight, config }: DecoderStep, name: string, x: ProgramTensor, index: number): ProgramTensor {
  const { hiddenDim } = config;
  const matrix = b.reshape(b.rows(weight(`${name}.weight`), index, index + 1), [hiddenDim, hiddenDim]);
  return b.activation('matmul', { x, weight: matrix });
}

/** All streams from the embeddings: the first is the embedding itself. */
export function spreadStreams(step: DecoderStep, x: ProgramTensor, { numStreams }: StreamSizes): ProgramTensor {
  const others = Array.from({ length: numStreams - 1 }, (_, index) => projected(step, 'altup_proj', x, index));
  return stacked(step, [x, ...asLongAs(step, x, others)]);
}

/** The mean of the streams, projected back and as long as the first. */
export function mergeStreams(step: DecoderStep, x: ProgramTensor, sizes: StreamSizes): ProgramTensor {
  const [first, ...rest] = streamsOf(step, x, sizes) as [ProgramTensor, ...ProgramTensor[]];
  const others = rest.map((stream, index) => projected(step, 'altup_unembd_proj', stream, index));
  const sum = asLongAs(step, first, others).reduce((all, each) => add(step, all, each), first);
  return scaled(step, sum, 1 / sizes.numStreams);
}

/** `tanh(W rms(x) / E)`, by which a layer mixes streams. */
function mixture(step: DecoderStep, layer: number, x: ProgramTensor): ProgramTensor {
  const own = `blk.${layer}`;
  const read = scaled(step, rmsNorm(step, `${own}.altup_router_norm`, x), 1 / step.config.hiddenDim);
  return step.b.activation('soft-cap', { x: linear(step, `${own}.altup_router`, read) }, { cap: 1 });
}

/** The predictions of a layer: each stream plus a mixture of all. */
export function predictStreams(
  step: DecoderStep,
  layer: number,
  x: ProgramTensor,
  sizes: StreamSizes,
): ProgramTensor[] {
  const { b, config } = step;
  const { numStreams, active } = sizes;
  const streams = streamsOf(step, x, sizes);
  const read = mixture(step, layer, streams[active] as ProgramTensor);
  const weights = linear(step, `blk.${layer}.altup_predict_coef`, read);
  const all = b.reshape(x, ['T', numStreams, config.hiddenDim]);
  return streams.map((stream, index) => {
    const own = columns(step, weights, index * numStreams, numStreams);
    return add(step, b.activation('expert-combine', { x: all, weights: own }), stream);
  });
}

/** The predictions, each moved by `1 + c` times what the layer added to that of the active stream, `computed`. */
export function correctStreams(
  step: DecoderStep,
  layer: number,
  predictions: readonly ProgramTensor[],
  computed: ProgramTensor,
  { active }: StreamSizes,
): ProgramTensor[] {
  const { b } = step;
  const change = add(step, scaled(step, predictions[active] as ProgramTensor, -1), computed);
  const weights = linear(step, `blk.${layer}.altup_correct_coef`, mixture(step, layer, computed));
  return predictions.map((prediction, index) => {
    const more = b.activation('scale-rows', { x: change, scales: columns(step, weights, index, 1) });
    return add(step, add(step, prediction, change), more);
  });
}

/** Adds what the layer computed of its own input to all streams but the first, and stacks them. */
export function addToOthers(step: DecoderStep, streams: readonly ProgramTensor[], x: ProgramTensor): ProgramTensor {
  return stacked(
    step,
    streams.map((stream, index) => (index === 0 ? stream : add(step, stream, x))),
  );
}

/** The matrices of streams beside the first are one tensor in GGUF files. */
export function* streamTensors(
  file: ModelFile,
  { hiddenDim, numLayers }: DecoderStep['config'],
  { numStreams }: StreamSizes,
): Generator<WeightRequest> {
  const names = tensorNames(file);
  for (const [own, hub] of [
    ['altup_proj', 'altup_projections'],
    ['altup_unembd_proj', 'altup_unembed_projections'],
  ] as const) {
    const parts = Array.from({ length: numStreams - 1 }, (_, index) => `model.${hub}.${index}.weight`);
    const name = `${own}.weight`;
    const shape = [numStreams - 1, hiddenDim, hiddenDim];
    yield { name, storedName: names.isHub ? `model.${hub}` : name, shape, ...(names.isHub ? { stackOf: parts } : {}) };
  }
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}.altup`, `model.layers.${layer}.altup`];
    yield* names.matrix([`${own}_correct_coef`, `${hub}.correction_coefs`], [numStreams, numStreams], 'none');
    yield* names.matrix([`${own}_predict_coef`, `${hub}.prediction_coefs`], [numStreams ** 2, numStreams], 'none');
    yield* names.matrix([`${own}_router`, `${hub}.modality_router`], [numStreams, hiddenDim], 'none');
    yield* names.norm([`${own}_router_norm`, `${hub}.router_norm`], hiddenDim, 'none');
    const scale = `${own}_correct_scale.weight`;
    yield { name: scale, storedName: names.isHub ? `${hub}.correct_output_scale` : scale, shape: [hiddenDim] };
  }
}
