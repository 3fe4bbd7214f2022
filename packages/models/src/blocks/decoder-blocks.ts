/** Building blocks of decoders; weights have their GGUF names, `blk.LAYER.NAME`. */
import type { Program, ProgramTensor } from '@winnow/ops';
import type { ModelDescription } from '../program/architecture.js';
import {
  addAdapted,
  DecoderStepBuilder,
  embedTokens,
  endDecoder,
  type AttentionRequest,
  type DecoderProgramOptions,
  type DecoderStep,
} from '../program/decoder-program.js';
import { endEmbedding, beginEmbedding, type EmbeddingProgramOptions } from '../program/embedding-program.js';
import { lowerFeedForward } from './feed-forward.js';
import type { Rotary } from './rotary.js';

/** Appends the norm of this name over the last axis. */
export type NormWriter = (step: DecoderStep, name: string, x: ProgramTensor) => ProgramTensor;

/** What an architecture specifies about a decoder. */
export interface DecoderDesign extends Pick<ModelDescription, 'config' | 'weights'> {
  readonly rotaries?: readonly Rotary[];
  /** Additional tables that no file contains. */
  readonly constants?: readonly (readonly [name: string, values: Float32Array])[];
  /** Default: looks up the embedding table. */
  readonly embed?: (step: DecoderStep) => ProgramTensor;
  /** Appends a layer and returns its hidden states `[T, hiddenDim]`. */
  readonly layer: (step: DecoderStep, layer: number, x: ProgramTensor) => ProgramTensor;
  /** Name of the norm before the output matrix. */
  readonly norm: NormWriter;
  /** Soft cap of the logits; default 0: none. */
  readonly softCap?: number;
  /** Factor of the logits. Default: 1. */
  readonly logitScale?: number;
}

/** Creates the description of a decoder with sequential layers. */
export function describeDecoder(design: DecoderDesign): ModelDescription {
  const { config, weights, rotaries = [], embed = embedTokens, layer, norm, softCap, logitScale } = design;
  const constants = new Map([...rotaries.flatMap((rotary) => rotary.constants), ...(design.constants ?? [])]);
  const writeLayers = (step: DecoderStep): ProgramTensor => {
    let x = embed(step);
    for (let index = 0; index < config.numLayers; index++) {
      step.b.setLayer(index);
      x = layer(step, index, x);
    }
    return x;
  };
  return {
    config,
    weights,
    constants,
    buildProgram(options: DecoderProgramOptions): Program {
      const step = new DecoderStepBuilder({ config, weights, constants }, options);
      const normalize = (rows: ProgramTensor): ProgramTensor => norm(step, 'output_norm', rows);
      endDecoder(step, writeLayers(step), { normalize, topK: options.topK, softCap, logitScale });
      return step.b.build();
    },
    buildEmbeddingProgram(options: EmbeddingProgramOptions): Program {
      const step = beginEmbedding({ config, weights, constants }, options);
      endEmbedding(step, writeLayers(step), (rows) => norm(step, 'output_norm', rows), options);
      return step.b.build();
    },
  };
}

export function add({ b }: DecoderStep, x: ProgramTensor, y: ProgramTensor): ProgramTensor {
  return b.activation('add', { a: x, b: y });
}

/** `factor * x`; a factor of 1 appends no op. */
export function scaled({ b }: DecoderStep, x: ProgramTensor, factor: number): ProgramTensor {
  return factor === 1 ? x : b.activation('scale', { x }, { factor });
}

export function rmsNorm(step: DecoderStep, name: string, x: ProgramTensor): ProgramTensor {
  return normWithEps(step, name, x, step.config.normEps);
}

/** A row for each token, `[T, n]`: the n values of a weight or constant. */
export function rowPerToken({ b, zeros }: DecoderStep, vector: ProgramTensor): ProgramTensor {
  const numValues = vector.shape.reduce((product: number, dim) => product * Number(dim), 1);
  // looks up the only row of a table
  return b.activation('embedding-lookup', { table: b.reshape(vector, [1, numValues]), tokens: zeros() });
}

/** An RMS norm with a separate epsilon. */
export function normWithEps({ b, weight }: DecoderStep, name: string, x: ProgramTensor, eps: number): ProgramTensor {
  return b.activation('rms-norm', { x, weight: weight(`${name}.weight`) }, { eps });
}

/** Layer normalization, with a bias if the model has one. */
export function layerNorm(step: DecoderStep, name: string, x: ProgramTensor): ProgramTensor {
  const { b, weight, optionalWeight, config } = step;
  const inputs = { x, weight: weight(`${name}.weight`), bias: optionalWeight(`${name}.bias`) };
  return b.activation('layer-norm', inputs, { eps: config.normEps });
}

/** A linear layer, with the bias if the model has one, and with its adapters. */
export function linear(step: DecoderStep, name: string, x: ProgramTensor): ProgramTensor {
  const { b, weight, optionalWeight } = step;
  const y = b.activation('matmul', { x, weight: weight(`${name}.weight`), bias: optionalWeight(`${name}.bias`) });
  return addAdapted(step, name, x, y);
}

/** The outputs `[begin, end)` of a matrix without bias. */
export function linearRows(
  step: DecoderStep,
  name: string,
  x: ProgramTensor,
  begin: number,
  end: number,
): ProgramTensor {
  const { b, weight } = step;
  const y = b.activation('matmul', { x, weight: b.rows(weight(`${name}.weight`), begin, end) });
  return addAdapted(step, name, x, y, (factor) => b.rows(factor, begin, end));
}

/** Options that differ between attention blocks. */
export interface AttentionOptions extends Pick<
  AttentionRequest,
  'window' | 'chunked' | 'softCap' | 'sinkLogits' | 'positionBias'
> {
  readonly rotary?: Rotary;
  /** Default: `1 / sqrt(headDim)`. */
  readonly scale?: number;
  /** Applied to the heads `[T, N, H]` of q and k before RoPE; `name` is `attn_q` or `attn_k`. */
  readonly normalizeHeads?: (name: string, heads: ProgramTensor) => ProgramTensor;
  /** Applied to the queries `[T, N, H]` before RoPE, which commutes with a factor per head. */
  readonly scaleQueries?: (query: ProgramTensor) => ProgramTensor;
}

/** Grouped-query attention over normalized inputs: projections, RoPE, attention, output projection. */
export function attentionBlock(
  step: DecoderStep,
  layer: number,
  x: ProgramTensor,
  { rotary, scale, window, chunked, softCap, sinkLogits, positionBias, normalizeHeads, scaleQueries }: AttentionOptions,
): ProgramTensor {
  const { b, config, positions } = step;
  const { numHeads, numKvHeads, headDim } = config;
  const heads = (name: string, count: number): ProgramTensor => {
    const raw = b.reshape(linear(step, `blk.${layer}.${name}`, x), ['T', count, headDim]);
    return normalizeHeads === undefined || name === 'attn_v' ? raw : normalizeHeads(`blk.${layer}.${name}`, raw);
  };
  const rotate = (raw: ProgramTensor, at: ProgramTensor): ProgramTensor =>
    rotary === undefined ? raw : rotary.rotate(step, raw, at);
  const ownQuery = heads('attn_q', numHeads);
  const query = scaleQueries === undefined ? ownQuery : scaleQueries(ownQuery);
  const y = step.attend(layer, {
    q: rotate(query, positions),
    k: rotate(heads('attn_k', numKvHeads), positions),
    v: heads('attn_v', numKvHeads),
    scale: scale ?? 1 / Math.sqrt(headDim),
    ...(window === undefined ? {} : { window }),
    ...(chunked === undefined ? {} : { chunked }),
    ...(softCap === undefined ? {} : { softCap }),
    ...(sinkLogits === undefined ? {} : { sinkLogits }),
    ...(positionBias === undefined ? {} : { positionBias }),
    rotateQuery: (at) => rotate(query, at),
  });
  return linear(step, `blk.${layer}.attn_output`, b.reshape(y, ['T', numHeads * headDim]));
}

/** `down(act(gate x) * up x)` of normalized inputs. */
export function gatedFeedForward(step: DecoderStep, layer: number, x: ProgramTensor): ProgramTensor {
  return lowerFeedForward(step, layer, x, true, () => {
    const gate = linear(step, `blk.${layer}.ffn_gate`, x);
    const up = linear(step, `blk.${layer}.ffn_up`, x);
    const y = step.b.activation('glu', { gate, up }, { kind: step.config.activation });
    return linear(step, `blk.${layer}.ffn_down`, y);
  });
}

/** `down(act(up x))` of normalized inputs. */
export function plainFeedForward(step: DecoderStep, layer: number, x: ProgramTensor): ProgramTensor {
  return lowerFeedForward(step, layer, x, false, () => {
    const up = linear(step, `blk.${layer}.ffn_up`, x);
    const y = step.b.activation('activation', { x: up }, { kind: step.config.activation });
    return linear(step, `blk.${layer}.ffn_down`, y);
  });
}

/** The parts of a standard block. */
export interface PreNormBlock {
  readonly norm: NormWriter;
  readonly attention: (layer: number, step: DecoderStep) => AttentionOptions;
  /** Default: gated. */
  readonly feedForward?: (step: DecoderStep, layer: number, x: ProgramTensor) => ProgramTensor;
  /** Factor of what attention and FFN add to the hidden states. Default: 1. */
  readonly residualScale?: number;
  /** Name of the norm before the FFN. Default: `ffn_norm`. */
  readonly ffnNorm?: string;
}

/** `x += attn(norm(x)); x += ffn(norm(x))`. */
export function preNormLayer({
  norm,
  attention,
  feedForward = gatedFeedForward,
  residualScale = 1,
  ffnNorm = 'ffn_norm',
}: PreNormBlock): DecoderDesign['layer'] {
  const branch = (step: DecoderStep, y: ProgramTensor): ProgramTensor => scaled(step, y, residualScale);
  return (step, layer, input) => {
    const normed = norm(step, `blk.${layer}.attn_norm`, input);
    const x = add(step, input, branch(step, attentionBlock(step, layer, normed, attention(layer, step))));
    return add(step, x, branch(step, feedForward(step, layer, norm(step, `blk.${layer}.${ffnNorm}`, x))));
  };
}
