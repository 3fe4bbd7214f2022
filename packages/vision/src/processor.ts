/** The image processors of Hugging Face checkpoints: resizing, cropping, tiles and normalization. */
import { FormatError } from '@winnow/tensor';
import { anyres } from './anyres.js';
import type { RgbImage } from './image.js';
import type { Normalization } from './patches.js';
import { resizeImage, type ResizeFilter } from './resize.js';
import { Settings, type ProcessorSettings, type Size } from './settings.js';
import { cropped, type ProcessedImage, type Resizing } from './tiles.js';

export interface ImageProcessor {
  readonly normalization: Normalization;
  /** Width and height of a tile in pixels; for tiles of any size, both are multiples of it. */
  readonly tileSize: number;
  /**
   * @param name name of the image in error messages. Default `image`
   * @param numImages number of images in the prompt: LLaVA-OneVision splits only a single image into tiles. Default 1
   * @throws {FormatError} for an image whose longer edge is more than 200 times the other one
   */
  process(image: RgbImage, name?: string, numImages?: number): ProcessedImage;
}

/** Names without the suffixes `Fast` and `Pil`, which denote other implementations of the same processor. */
const fixedProcessors = ['CLIPImageProcessor', 'SiglipImageProcessor', 'LlavaImageProcessor', 'Gemma3ImageProcessor'];
const tiledProcessors = ['Idefics3ImageProcessor', 'SmolVLMImageProcessor'];
const anyresProcessors = ['LlavaNextImageProcessor', 'LlavaOnevisionImageProcessor'];
const scaledProcessors = ['Qwen2VLImageProcessor'];

export interface ProcessorOptions {
  /** Maximum number of pixels of an image, for processors that keep its shape. Default: that of the settings. */
  readonly maxPixels?: number;
}

type CreateResizing = (read: Settings, kind: string, maxPixels: number) => Resizing;

const kinds: readonly (readonly [names: readonly string[], create: CreateResizing])[] = [
  [fixedProcessors, fixed],
  [tiledProcessors, tiled],
  [anyresProcessors, anyres],
  [scaledProcessors, (read, _kind, maxPixels) => scaled(read, maxPixels)],
];

/**
 * Creates the processor that settings describe. Its pixels equal those of the transformers processors that use Pillow.
 * @param source name of the file, for error messages
 * @throws {FormatError} for a processor or a setting that is not supported
 */
export function createImageProcessor(
  settings: ProcessorSettings,
  source: string,
  { maxPixels = Infinity }: ProcessorOptions = {},
): ImageProcessor {
  const read = new Settings(settings, source);
  const kind = read.text('image_processor_type', 'feature_extractor_type').replace(/(Fast|Pil)$/, '');
  const known = kind.replace(/FeatureExtractor$/, 'ImageProcessor');
  const normalization = read.normalization();
  const [, create] = kinds.find(([names]) => names.includes(known)) ?? [];
  if (create === undefined) {
    throw read.refusal('image_processor_type', kinds.flatMap(([names]) => names).join(', '), kind);
  }
  const { tileSize, process } = create(read, known, maxPixels);
  return {
    ...{ normalization, tileSize },
    process(image, name = 'image', numImages = 1) {
      const { width, height } = image;
      return { ...process(checkedRatio(image, name), numImages), width, height };
    },
  };
}

/** Maximum ratio of the edges: resizing a strip of 1 x 60000 pixels by its shorter edge would take gigabytes. */
const maxRatio = 200;

function checkedRatio(image: RgbImage, name: string): RgbImage {
  const { width, height } = image;
  if (Math.max(width, height) <= maxRatio * Math.min(width, height)) return image;
  const message = `expected edges in a ratio of at most ${maxRatio}, got ${width} x ${height} pixels`;
  throw new FormatError({ source: name, field: 'size', message });
}

/** A single square: the image is resized to it, or resized by its shorter edge and cropped. */
function fixed(read: Settings, kind: string): Resizing {
  const filter = read.filter(kind === 'Gemma3ImageProcessor' ? 'bilinear' : 'bicubic');
  for (const name of ['do_pad', 'do_pan_and_scan']) {
    if (read.flag(name, false)) throw read.refusal(name, 'false', true);
  }
  const size = read.sizeOf('size');
  const crop = read.flag('do_center_crop', 'shortest' in size) ? read.sizeOf('crop_size') : undefined;
  const square = crop ?? size;
  if (!('width' in square) || square.width !== square.height) {
    throw read.refusal(crop === undefined ? 'size' : 'crop_size', 'a square', square);
  }
  const tileSize = square.width;
  return {
    tileSize,
    process(image) {
      const [width, height] = targetOf(image, size);
      const resized = resizeImage(image, width, height, filter);
      return { tiles: [crop === undefined ? resized : cropCenter(resized, tileSize)], rows: 0, columns: 0 };
    },
  };
}

/** Width and height, as in `get_resize_output_image_size` of transformers: the longer edge is truncated to an integer. */
function targetOf({ width, height }: RgbImage, size: Size): [width: number, height: number] {
  if ('width' in size) return [size.width, size.height];
  const edge = 'shortest' in size ? size.shortest : size.longest;
  const long = Math.trunc((edge * Math.max(width, height)) / Math.min(width, height));
  return width <= height ? [edge, long] : [long, edge];
}

/** The centered square, padded with zeros if the image is smaller. */
function cropCenter(image: RgbImage, size: number): RgbImage {
  const offset = (length: number): number =>
    length >= size ? Math.floor((length - size) / 2) : -Math.ceil((size - length) / 2);
  return cropped(image, offset(image.width), offset(image.height), size);
}

/** Idefics3 and SmolVLM: resizes the longest edge to `size`, then makes a grid of squares of `max_image_size` and one of the image. */
function tiled(read: Settings): Resizing {
  const filter = read.filter('lanczos');
  const size = read.sizeOf('size');
  const square = read.sizeOf('max_image_size');
  if (!('longest' in size)) throw read.refusal('size', 'a longest_edge', size);
  if (!('longest' in square)) throw read.refusal('max_image_size', 'a longest_edge', square);
  const tileSize = square.longest;
  const splits = read.flag('do_image_splitting', true);
  return {
    tileSize,
    process(image) {
      const resized = resizeTo(image, longestEdge(image, size.longest), filter);
      const whole = (of: RgbImage): RgbImage => resizeImage(of, tileSize, tileSize, filter);
      if (!splits) return { tiles: [whole(resized)], rows: 0, columns: 0 };
      const grid = resizeTo(resized, wholeTiles(resized, tileSize), filter);
      const [rows, columns] = [grid.height / tileSize, grid.width / tileSize];
      if (rows === 1 && columns === 1) return { tiles: [grid], rows: 0, columns: 0 };
      const tiles: RgbImage[] = [];
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) {
          tiles.push(cropped(grid, column * tileSize, row * tileSize, tileSize));
        }
      }
      return { tiles: [...tiles, whole(grid)], rows, columns };
    },
  };
}

/** Qwen2-VL and later: a single tile of about the size and shape of the image, whose edges are multiples of a square of patches. */
function scaled(read: Settings, maxAllowed: number): Resizing {
  const filter = read.filter('bicubic');
  const tileSize = read.count('patch_size', 14) * read.count('merge_size', 2);
  const [min, max] = read.pixelRange();
  const limit = Math.max(tileSize ** 2, Math.min(max, maxAllowed));
  return {
    tileSize,
    process(image) {
      const size = smartSize(image, tileSize, Math.min(min, limit), limit);
      return { tiles: [resizeTo(image, size, filter)], rows: 0, columns: 0 };
    },
  };
}

/** `smart_resize` of image_processing_qwen2_vl.py: the nearest multiples within a range of total pixels. */
function smartSize(
  { width, height }: RgbImage,
  unit: number,
  min: number,
  max: number,
): [width: number, height: number] {
  const edges = [width, height];
  const near = edges.map((edge) => roundHalfEven(edge / unit) * unit) as [number, number];
  const pixels = near[0] * near[1];
  if (pixels > max) {
    const beta = Math.sqrt((height * width) / max);
    return edges.map((edge) => Math.max(unit, Math.floor(edge / beta / unit) * unit)) as [number, number];
  }
  if (pixels >= min) return near;
  const beta = Math.sqrt(min / (height * width));
  return edges.map((edge) => Math.ceil((edge * beta) / unit) * unit) as [number, number];
}

/** Python's `round`. */
function roundHalfEven(value: number): number {
  const below = Math.floor(value);
  const rest = value - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below;
}

function resizeTo(image: RgbImage, [width, height]: readonly [number, number], filter: ResizeFilter): RgbImage {
  return resizeImage(image, width, height, filter);
}

/** Maximum edge in pixels after resizing, as in transformers. */
const maxEdge = 4096;

/** The longer edge becomes `edge`, the other one an even number, as in `_resize_output_size_rescale_to_max_len`. */
function longestEdge({ width, height }: RgbImage, edge: number): [width: number, height: number] {
  const even = (value: number): number => value + (value % 2);
  const ratio = width / height;
  const [wide, tall] =
    width >= height ? [edge, even(Math.trunc(edge / ratio))] : [even(Math.trunc(edge * ratio)), edge];
  return belowMaxEdge(Math.max(wide, 1), Math.max(tall, 1));
}

function belowMaxEdge(width: number, height: number): [width: number, height: number] {
  const ratio = width / height;
  if (width >= height && width > maxEdge) return [maxEdge, Math.max(1, Math.trunc(maxEdge / ratio))];
  if (height > width && height > maxEdge) return [Math.max(1, Math.trunc(maxEdge * ratio)), maxEdge];
  return [width, height];
}

/** Makes both edges multiples of a tile, as in `resize_for_vision_encoder`. */
function wholeTiles({ width, height }: RgbImage, tile: number): [width: number, height: number] {
  const up = (value: number): number => Math.ceil(value / tile) * tile;
  const ratio = width / height;
  if (width >= height) return [up(width), up(Math.trunc(up(width) / ratio))];
  return [up(Math.trunc(up(height) * ratio)), up(height)];
}
