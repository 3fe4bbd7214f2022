/**
 * Vision transformers for images of any size and shape (Qwen2-VL, arXiv:2409.12191 §2.1; Qwen2.5-VL, arXiv:2502.13923 §2.1.1):
 * RoPE by row and column of a patch, optional windowed attention in most layers, and one output row per square of patches.
 */
import { ropeFrequencies, type AttentionLowering, type ProgramTensor } from '@winnow/ops';
import { linear, type DecoderDesign } from '../blocks/decoder-blocks.js';
import type { Rotary } from '../blocks/rotary.js';
import type { Fields } from '../file/fields.js';
import type { Weight } from '../file/weights.js';
import type { ImageSize, ImageStep, RowGrid, VisionPart } from '../program/architecture.js';
import { DecoderStepBuilder, type DecoderStep } from '../program/decoder-program.js';
import { embeddingBlockSize, lowerBidirectionalAttention } from '../program/embedding-program.js';
import type { EncoderConfig } from '../settings/encoder-settings.js';
import { addGridPositions, fillGridPositions, placeWeightsName } from './grid-positions.js';
import { concatenatedRows, imageTokensSlot, subtractTokenRow, visionPatchesName, visionPrefix } from './tower.js';

/** Maximum number of rows of an image: 1,003,520 pixels in Qwen2-VL. Larger images are downscaled, as by `max_pixels`. */
const maxImageRows = 1280;

export interface ScaledDesign {
  readonly config: EncoderConfig;
  /** As in `VisionPart`. */
  readonly fields: Fields;
  readonly weights: Map<string, Weight>;
  /** The image token in the prompt of the decoder. */
  readonly imageTokenId: number;
  readonly dim: number;
  /** Width and height of a patch in pixels. */
  readonly patchSize: number;
  /** Patches per side of a square. */
  readonly mergeSize: number;
  /** Number of frames per patch: the pixels of an image are repeated as often. */
  readonly numFrames: number;
  /** Windows of `side` x `side` squares and the layers that attend within them. Default: all attend to the whole image. */
  readonly windows?: { readonly side: number; readonly hasWindows: (layer: number) => boolean };
  readonly layer: (rotary: Rotary) => DecoderDesign['layer'];
  /** Points per side of the grid of learned positions. Default: no learned positions. */
  readonly positionSide?: number;
  /**
   * Appends what follows the layers. Returns the rows `[R, E]`, and further ones for layers of the decoder; `dim` is their total length.
   * @param hidden the states after each layer, `[T, hiddenDim]`
   * @param merge concatenates the states of each square: `[R, S S hiddenDim]`
   */
  readonly finish: (
    step: DecoderStep,
    hidden: readonly ProgramTensor[],
    merge: (x: ProgramTensor) => ProgramTensor,
  ) => readonly [rows: ProgramTensor, ...more: ProgramTensor[]];
}

/** Names of the constants with the RoPE frequencies for rows and columns. */
const [rowFrequencies, columnFrequencies] = ['v.rope.rows', 'v.rope.columns'];

/** Creates the vision part of a description. */
export function describeScaledVision(design: ScaledDesign): VisionPart {
  const { config, fields, patchSize, mergeSize, numFrames, dim } = design;
  const constants = gridFrequencies(config);
  const gridOf = ({ width, height }: ImageSize): RowGrid => {
    const unit = patchSize * mergeSize;
    return { rows: Math.floor(height / unit), columns: Math.floor(width / unit) };
  };
  const sizes = sizesOf(design);
  return {
    ...{ config, fields, patchSize, numFrames, dim, constants, gridOf, isBidirectional: false },
    ...{ imageSize: patchSize * mergeSize, numRows: maxImageRows, numTokens: sizes.maxTokens },
    buildProgram({ tokenRow } = {}) {
      const step = beginImage(design, sizes, constants);
      let x = embedPatches(step, design);
      const layer = design.layer(gridRotary(step));
      const hidden: ProgramTensor[] = [];
      for (let index = 0; index < config.numLayers; index++) {
        step.b.setLayer(index);
        x = layer(step, index, x);
        hidden.push(x);
      }
      step.b.setLayer(-1);
      const squares = step.b.scalar('squareRows', ['R']);
      const merge = (values: ProgramTensor): ProgramTensor => concatenatedRows(step, values, squares, mergeSize ** 2);
      const [rows, ...more] = design.finish(step, hidden, merge);
      const own = tokenRow === true ? subtractTokenRow(step, rows, design.weights, imageTokensSlot) : rows;
      step.b.output('embeddings', sideBySide(step, [own, ...more]));
      return step.b.build();
    },
    fill: (slot, size) => fillImage(slot, gridOf(size), design, sizes),
  };
}

/** Concatenates the columns of several tensors `[R, E]`: `[R, N E]`. */
function sideBySide({ b }: DecoderStep, parts: readonly ProgramTensor[]): ProgramTensor {
  if (parts.length === 1) return parts[0] as ProgramTensor;
  const width = parts[0]?.shape[1] as number;
  const padded = parts.map((x, index) =>
    b.activation('slice-columns', { x }, { begin: -index * width, length: parts.length * width, pads: true }),
  );
  return padded.reduce((sum, x) => b.activation('add', { a: sum, b: x }));
}

/** Capacities of a step. The patches of a window fill whole blocks, except for the last window. */
interface Sizes {
  readonly maxTokens: number;
  readonly maxWindows: number;
  readonly blockSize: number;
  readonly numBlocks: number;
  readonly blocksPerWindow: number;
}

function sizesOf({ mergeSize, windows }: ScaledDesign): Sizes {
  const maxTokens = maxImageRows * mergeSize ** 2;
  if (windows === undefined) {
    const numBlocks = Math.ceil(maxTokens / embeddingBlockSize);
    return { maxTokens, maxWindows: 1, blockSize: embeddingBlockSize, numBlocks, blocksPerWindow: numBlocks };
  }
  const { side } = windows;
  const blockSize = side * mergeSize ** 2;
  return {
    ...{ maxTokens, blockSize, blocksPerWindow: side, numBlocks: Math.ceil(maxTokens / blockSize) },
    // ceil(h / s) ceil(w / s) is largest for an image of one row of squares
    maxWindows: Math.ceil(maxImageRows / side),
  };
}

function beginImage(design: ScaledDesign, sizes: Sizes, constants: ReadonlyMap<string, Float32Array>): DecoderStep {
  const { config, weights, windows } = design;
  const { maxTokens, maxWindows, blockSize, numBlocks, blocksPerWindow } = sizes;
  /** The keys of all patches as one sequence. */
  let whole: { readonly blockTable: ProgramTensor; readonly contextLengths: ProgramTensor } | undefined;
  const attention: AttentionLowering = (b, node) => {
    if (windows?.hasWindows(node.layer) !== false) return lowerBidirectionalAttention(b, node);
    whole ??= { blockTable: b.scalar('wholeBlocks', [1, numBlocks]), contextLengths: b.scalar('wholeLength', [1]) };
    return lowerBidirectionalAttention(b, { ...node, sequences: step.zeros(), kv: { ...node.kv, ...whole } });
  };
  const cache = { numBlocks, blockSize, maxBlocksPerSequence: blocksPerWindow, dtype: floats };
  const options = {
    ...{ maxTokens, maxSequences: maxWindows, maxOutputRows: maxImageRows, topK: 0, contextSize: maxTokens },
    ...{ cache, attention, namePrefix: visionPrefix },
  };
  const step = new DecoderStepBuilder({ config, weights, constants }, options, true);
  return step;
}

const floats = { keys: 'f32', values: 'f32' } as const;

function embedPatches(step: DecoderStep, { patchSize, numFrames, positionSide }: ScaledDesign): ProgramTensor {
  const { b } = step;
  const shape = [1 + b.capacity('T'), 3 * numFrames * patchSize ** 2];
  const table = b.external(visionPatchesName, 'kv', 'f32', shape);
  const pixels = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  const patches = linear(step, 'patch_embd', pixels);
  return positionSide === undefined ? patches : addGridPositions(step, patches);
}

/** Half of the pairs of a head are rotated by the row of a patch, half by its column; pairs with frequency 0 are not rotated. */
function gridFrequencies({ headDim }: EncoderConfig): ReadonlyMap<string, Float32Array> {
  const { frequencies } = ropeFrequencies({ base: 10000, rotaryDim: headDim / 2 });
  const zeros = new Float32Array(frequencies.length);
  return new Map([
    [rowFrequencies, Float32Array.of(...frequencies, ...zeros)],
    [columnFrequencies, Float32Array.of(...zeros, ...frequencies)],
  ]);
}

function gridRotary({ b, constant }: DecoderStep): Rotary {
  const [rows, columns] = [b.scalar('patchRows', ['T']), b.scalar('patchColumns', ['T'])];
  const rotated = (x: ProgramTensor, positions: ProgramTensor, name: string): ProgramTensor =>
    b.activation('rope', { x, positions, frequencies: constant(name) }, { layout: 'halves' });
  return {
    constants: [],
    rotate: (_step, x) => rotated(rotated(x, rows, rowFrequencies), columns, columnFrequencies),
  };
}

/** Orders the patches by window, within a window by square, and within a square by row and column. */
function fillImage(
  slot: (name: string) => Int32Array,
  grid: RowGrid,
  { mergeSize, windows, imageTokenId, positionSide }: ScaledDesign,
  { blockSize, blocksPerWindow }: Sizes,
): ImageStep {
  const side = windows?.side ?? Math.max(grid.rows, grid.columns);
  const numRows = grid.rows * grid.columns;
  const numTokens = numRows * mergeSize ** 2;
  const weights = positionSide === undefined ? undefined : new Float32Array(4 * numTokens);
  const patches = { rows: grid.rows * mergeSize, columns: grid.columns * mergeSize };
  const [lengths, blocks, order] = [slot('contextLengths'), slot('blockTable'), slot('squareRows')];
  let numSequences = 0;
  let square = 0;
  for (let top = 0; top < grid.rows; top += side) {
    for (let left = 0; left < grid.columns; left += side, numSequences++) {
      const begin = square;
      for (let row = top; row < Math.min(top + side, grid.rows); row++) {
        for (let column = left; column < Math.min(left + side, grid.columns); column++, square++) {
          order[row * grid.columns + column] = square;
          eachPatch({ square, row, column, window: numSequences }, mergeSize, (token, y, x, window) => {
            fillPatch(slot, token, y * patches.columns + x, [y, x], window);
            if (weights && positionSide) fillGridPositions(slot, weights, token, [y, x], patches, positionSide);
          });
        }
      }
      const length = (square - begin) * mergeSize ** 2;
      lengths[numSequences] = length;
      const firstBlock = (begin * mergeSize ** 2) / blockSize;
      for (let block = 0; block * blockSize < length; block++) {
        blocks[numSequences * blocksPerWindow + block] = firstBlock + block;
      }
    }
  }
  if (windows !== undefined) {
    slot('wholeLength')[0] = numTokens;
    const all = slot('wholeBlocks');
    for (let block = 0; block * blockSize < numTokens; block++) all[block] = block;
  }
  slot(imageTokensSlot).fill(imageTokenId);
  const tables = weights === undefined ? {} : { tables: new Map([[placeWeightsName, weights]]) };
  return { numTokens, numSequences, numRows, ...tables };
}

interface Square {
  /** Index of the square in the step, and its row and column in the image. */
  readonly square: number;
  readonly row: number;
  readonly column: number;
  readonly window: number;
}

/** Visits the patches of a square in row-major order. */
function eachPatch(
  { square, row, column, window }: Square,
  mergeSize: number,
  visit: (token: number, y: number, x: number, window: number) => void,
): void {
  for (let patch = 0; patch < mergeSize ** 2; patch++) {
    const y = row * mergeSize + Math.floor(patch / mergeSize);
    visit(square * mergeSize ** 2 + patch, y, column * mergeSize + (patch % mergeSize), window);
  }
}

function fillPatch(
  slot: (name: string) => Int32Array,
  token: number,
  patch: number,
  [y, x]: readonly [number, number],
  window: number,
): void {
  slot('tokens')[token] = 1 + patch;
  slot('patchRows')[token] = y;
  slot('patchColumns')[token] = x;
  slot('positions')[token] = token;
  slot('slots')[token] = token;
  slot('sequences')[token] = window;
}
