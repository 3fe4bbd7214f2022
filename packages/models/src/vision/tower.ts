/**
 * Vision transformers (arXiv:2010.11929): bidirectional encoders of pre-norm blocks whose tokens are patches,
 * `x = W patch + b + position`; CLIP puts a class token before them.
 */
import type { ProgramTensor } from '@winnow/ops';
import {
  add,
  layerNorm,
  linear,
  plainFeedForward,
  preNormLayer,
  type DecoderDesign,
} from '../blocks/decoder-blocks.js';
import { lowerFeedForward } from '../blocks/feed-forward.js';
import type { Weight, WeightRequest } from '../file/weights.js';
import type { ModelFile, VisionPart, VisionProgramOptions } from '../program/architecture.js';
import { tokenTypesSlot, type DecoderStep } from '../program/decoder-program.js';
import { beginEmbedding, embeddingBlockSize } from '../program/embedding-program.js';
import type { EmbedderDescription } from '../program/architecture.js';
import { tensorNames } from '../program/tensors.js';
import { gridOf, layerTensors, type Tower } from './checkpoint.js';

/** Name of the buffer with the patches of an image. */
export const visionPatchesName = 'slots.v.patches';

/** Prefix of the weights and buffers of vision encoders. */
export const visionPrefix = 'v.';

/** Slot with the token whose embedding is subtracted from each row, `[R]`. */
export const imageTokensSlot = 'imageTokens';

/** The same for the row at the end of a line, `[1]`. */
const newlineTokenSlot = 'newlineTokens';

/** Differences between vision encoders. */
export interface VisionDesign {
  readonly tower: Tower;
  readonly weights: EmbedderDescription['weights'];
  /** Whether there is a class token, in the first row of the positions. */
  readonly hasClass: boolean;
  readonly numRows: number;
  /** The image token, if the rows become part of the prompt of a decoder. */
  readonly imageTokenId?: number;
  readonly dim: number;
  /** The patch of each token of the step. Default: row-major order. */
  readonly order?: Int32Array;
  /** The row of the position table for each patch in row-major order. Default: the index of the patch. */
  readonly places?: Int32Array;
  /** How an image is written in the prompt, as in `VisionPart`. */
  readonly frame?: VisionPart['frame'];
  readonly marks?: VisionPart['marks'];
  /** How tiles are joined, which requires the weight `image_newline.weight` `[1, dim]`. */
  readonly grid?: VisionPart['grid'];
  /** Whether attention of the decoder is bidirectional within an image. Default false. */
  readonly isBidirectional?: boolean;
  /** Factor of the decoder's embeddings. Default 1. */
  readonly embeddingScale?: number;
  /** Integer inputs `[numRows]` of `finish`, by name. Default: none. */
  readonly slots?: Readonly<Record<string, Int32Array>>;
  /** Appends what follows the last layer: maps the hidden states `[T, hiddenDim]` to `[numRows, dim]`. */
  readonly finish: (step: DecoderStep, hidden: ProgramTensor, slot: (name: string) => ProgramTensor) => ProgramTensor;
}

/** `down(y sigmoid(1.702 y))` with `y = up x`: the approximation of GELU in CLIP, as a SiLU of the scaled input. */
export function quickFeedForward(step: DecoderStep, layer: number, x: ProgramTensor): ProgramTensor {
  const { b } = step;
  return lowerFeedForward(step, layer, x, false, () => {
    const scaled = b.activation('scale', { x: linear(step, `blk.${layer}.ffn_up`, x) }, { factor: quickFactor });
    const active = b.activation('activation', { x: scaled }, { kind: 'silu' });
    const y = b.activation('scale', { x: active }, { factor: 1 / quickFactor });
    return linear(step, `blk.${layer}.ffn_down`, y);
  });
}

const quickFactor = 1.702;

/** The layers of a tower. */
export function towerLayer({ isQuick }: Tower): DecoderDesign['layer'] {
  const feedForward = isQuick ? quickFeedForward : plainFeedForward;
  return preNormLayer({ norm: layerNorm, attention: () => ({}), feedForward });
}

/** Creates the vision part of a description. */
export function describeVision(design: VisionDesign): VisionPart {
  const {
    tower,
    weights,
    hasClass,
    numRows,
    dim,
    slots = {},
    finish,
    isBidirectional = false,
    embeddingScale,
  } = design;
  const { config, fields } = tower;
  const { imageSize, patchSize, side } = gridOf(fields);
  const numPatches = side ** 2;
  const numTokens = numPatches + Number(hasClass);
  const order = design.order ?? Int32Array.from({ length: numPatches }, (_, index) => index);
  const layer = towerLayer(tower);
  return {
    ...{ config, fields, imageSize, patchSize, numFrames: 1, numRows, dim, numTokens, isBidirectional },
    ...(design.frame === undefined ? {} : { frame: design.frame }),
    ...(design.marks === undefined ? {} : { marks: design.marks }),
    ...(design.grid === undefined ? {} : { grid: design.grid }),
    buildProgram({ tokenRow }: VisionProgramOptions = {}) {
      const options = { maxTokens: numTokens, maxSequences: 1, pooling: 'mean', namePrefix: visionPrefix } as const;
      const step = beginEmbedding({ config, weights, constants: new Map() }, options);
      let x = embedPatches(step, numPatches, patchSize);
      for (let index = 0; index < config.numLayers; index++) {
        step.b.setLayer(index);
        x = layer(step, index, x);
      }
      step.b.setLayer(-1);
      const result = finish(step, x, (name) => step.b.scalar(name, [numRows]));
      const output = (name: string, rows: ProgramTensor, tokens: string): void =>
        step.b.output(name, tokenRow === true ? subtractTokenRow(step, rows, weights, tokens, embeddingScale) : rows);
      output('embeddings', result, imageTokensSlot);
      if (design.grid !== undefined) output('newline', newlineRow(step), newlineTokenSlot);
      return step.b.build();
    },
    fill(slot) {
      fillPatches(slot, design, order);
      for (const [name, values] of Object.entries(slots)) slot(name).set(values);
      if (design.imageTokenId !== undefined) {
        slot(imageTokensSlot).fill(design.imageTokenId);
        if (design.grid !== undefined) slot(newlineTokenSlot).fill(design.imageTokenId);
      }
      return { numTokens, numSequences: 1, numRows };
    },
  };
}

function embedPatches(step: DecoderStep, numPatches: number, patchSize: number): ProgramTensor {
  const { b, weight, optionalWeight } = step;
  const table = b.external(visionPatchesName, 'kv', 'f32', [1 + numPatches, 3 * patchSize ** 2]);
  const patches = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  let x = linear(step, 'patch_embd', patches);
  const classes = optionalWeight('class_embd.weight');
  if (classes !== undefined)
    x = add(step, x, b.activation('embedding-lookup', { table: classes, tokens: step.tokenTypes() }));
  const places = b.scalar('places', ['T']);
  x = add(step, x, b.activation('embedding-lookup', { table: weight('position_embd.weight'), tokens: places }));
  return step.hasWeight('pre_ln.weight') ? layerNorm(step, 'pre_ln', x) : x;
}

/** The row at the end of a line: `[1, dim]`. */
function newlineRow({ b, weight }: DecoderStep): ProgramTensor {
  return b.activation('embedding-lookup', {
    table: weight('image_newline.weight'),
    tokens: b.scalar('newlineRows', [1]), // 0, the index of the only row
  });
}

/**
 * Subtracts from each row the embedding of the image token, which the decoder adds.
 * @param slot name of the slot with these tokens
 * @param embeddingScale factor of the decoder's embeddings
 */
export function subtractTokenRow(
  step: DecoderStep,
  rows: ProgramTensor,
  weights: EmbedderDescription['weights'],
  slot: string,
  embeddingScale = 1,
): ProgramTensor {
  const { b } = step;
  const { name, dtype, shape } = weights.get('token_embd.weight') as Weight;
  const table = b.external(name, 'weights', dtype, shape);
  const tokens = b.scalar(slot, [rows.shape[0] as ProgramTensor['shape'][number]]);
  return add(step, rows, b.activation('embedding-lookup', { table, tokens }, { scale: -embeddingScale }));
}

/** Name of the buffer in which rows are concatenated. */
const squaresName = 'slots.v.squares';

/**
 * Concatenates consecutive rows of x `[T, E]`: `[R, C E]`.
 * @param rows indices of the results to return, `[R]`
 * @param count number of rows to concatenate (C)
 */
export function concatenatedRows(
  { b, slots }: DecoderStep,
  x: ProgramTensor,
  rows: ProgramTensor,
  count: number,
): ProgramTensor {
  const numTokens = b.capacity('T');
  const width = x.shape[1] as number;
  const squares = b.external(squaresName, 'kv', 'f32', [numTokens, width]);
  b.append('scatter-rows', { x, rows: slots }, {}, { y: squares });
  const table = b.reshape(squares, [numTokens / count, width * count]);
  return b.activation('embedding-lookup', { table, tokens: rows });
}

/** Orders the patches of a square grid by squares of `scale` patches per side, each in row-major order. */
export function squareOrder(side: number, scale: number): Int32Array {
  const perRow = side / scale;
  return Int32Array.from({ length: side ** 2 }, (_, index) => {
    const square = Math.floor(index / scale ** 2);
    const within = index % scale ** 2;
    const y = Math.floor(square / perRow) * scale + Math.floor(within / scale);
    const x = (square % perRow) * scale + (within % scale);
    return y * side + x;
  });
}

function fillPatches(slot: (name: string) => Int32Array, design: VisionDesign, order: Int32Array): void {
  const { hasClass, places: placeOf } = design;
  const numTokens = order.length + Number(hasClass);
  const [tokens, places] = [slot('tokens'), slot('places')];
  const [positions, slots] = [slot('positions'), slot('slots')];
  for (let token = 0; token < numTokens; token++) {
    positions[token] = token;
    slots[token] = token;
    // the class token is a patch of zeros
    const isClass = hasClass && token === 0;
    const patch = isClass ? 0 : (order[token - Number(hasClass)] as number);
    tokens[token] = isClass ? 0 : 1 + patch;
    places[token] = isClass ? 0 : (placeOf?.[patch] ?? patch) + Number(hasClass);
    if (hasClass) slot(tokenTypesSlot)[token] = Number(!isClass);
  }
  slot('contextLengths')[0] = numTokens;
  const blocks = slot('blockTable');
  for (let block = 0; block < Math.ceil(numTokens / embeddingBlockSize); block++) blocks[block] = block;
}

/** The tensors of a vision encoder. @param hub prefix of its tensors in the checkpoint */
export function* visionTensors(
  file: ModelFile,
  tower: Tower,
  hub: string,
  parts: { readonly hasClass: boolean; readonly hasPostNorm: boolean },
): Generator<WeightRequest> {
  const { hiddenDim } = tower.config;
  const { patchSize, side } = gridOf(tower.fields);
  const { hasClass, hasPostNorm } = parts;
  const names = tensorNames(file);
  const numPositions = side ** 2 + Number(hasClass);
  const patch = ['v.patch_embd', `${hub}embeddings.patch_embedding`] as const;
  yield* names.matrix(patch, [hiddenDim, 3 * patchSize ** 2], hasClass ? 'none' : 'required');
  const positions = ['v.position_embd', `${hub}embeddings.position_embedding`] as const;
  yield* names.matrix(positions, [numPositions, hiddenDim], 'none');
  if (hasClass) {
    const name = 'v.class_embd.weight';
    const storedName = names.isHub ? `${hub}embeddings.class_embedding` : name;
    yield { name, storedName, shape: [2, hiddenDim], isFloat: true };
    yield* names.norm(['v.pre_ln', `${hub}pre_layrnorm`], hiddenDim, 'required');
  }
  if (hasPostNorm) yield* names.norm(['v.post_ln', `${hub}post_layernorm`], hiddenDim, 'required');
  yield* layerTensors(file, tower.config, 'v.', hub);
}
