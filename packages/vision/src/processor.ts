/** The image processors of Hugging Face checkpoints: resizing, cropping, tiles and normalization. */
import { FormatError, isRecord } from '@winnow/tensor';
import type { RgbImage } from './image.js';
import type { Normalization } from './patches.js';
import { resizeImage, type ResizeFilter } from './resize.js';

/** An image as the squares that an encoder looks at. */
export interface ProcessedImage {
  readonly tiles: readonly RgbImage[];
  /** Tiles are the cells of a grid, row by row, and then the whole image. 0: there is only the whole image. */
  readonly rows: number;
  readonly columns: number;
}

export interface ImageProcessor {
  readonly normalization: Normalization;
  /** Width and height of a tile in pixels. */
  readonly tileSize: number;
  /**
   * @param name the image in error messages. Default `image`
   * @throws {FormatError} for an image whose longer edge is more than 200 times the other one
   */
  process(image: RgbImage, name?: string): ProcessedImage;
}

/** Settings of `preprocessor_config.json`, or the same from another file. */
export type ProcessorSettings = Readonly<Record<string, unknown>>;

/** Numbers of Pillow's `Resampling`. */
const filters: Readonly<Record<number, ResizeFilter>> = { 1: 'lanczos', 2: 'bilinear', 3: 'bicubic', 4: 'box' };

/** Names without `Fast` and `Pil`, which stand for other implementations of the same. */
const fixedProcessors = ['CLIPImageProcessor', 'SiglipImageProcessor', 'LlavaImageProcessor', 'Gemma3ImageProcessor'];
const tiledProcessors = ['Idefics3ImageProcessor', 'SmolVLMImageProcessor'];

/**
 * The processor that settings describe. Its pixels are those of the processors of transformers that use Pillow.
 * @param source the file, for error messages
 * @throws {FormatError} for a processor or a setting that is not supported
 */
export function createImageProcessor(settings: ProcessorSettings, source: string): ImageProcessor {
  const read = new Settings(settings, source);
  const kind = read.text('image_processor_type', 'feature_extractor_type').replace(/(Fast|Pil)$/, '');
  const known = kind.replace(/FeatureExtractor$/, 'ImageProcessor');
  const normalization = read.normalization();
  const create = fixedProcessors.includes(known) ? fixed : tiledProcessors.includes(known) ? tiled : undefined;
  if (create !== undefined) {
    const { tileSize, process } = create(read, known);
    return { normalization, tileSize, process: (image, name = 'image') => process(checkedRatio(image, name)) };
  }
  const expected = [...fixedProcessors, ...tiledProcessors].join(', ');
  throw read.refusal('image_processor_type', expected, kind);
}

/** A processor without its normalization. */
interface Resizing {
  readonly tileSize: number;
  process(image: RgbImage): ProcessedImage;
}

/** Ratio of the edges: a strip of 1 x 60000 pixels would be resized by its shorter edge to gigabytes. */
const maxRatio = 200;

function checkedRatio(image: RgbImage, name: string): RgbImage {
  const { width, height } = image;
  if (Math.max(width, height) <= maxRatio * Math.min(width, height)) return image;
  const message = `expected edges in a ratio of at most ${maxRatio}, got ${width} x ${height} pixels`;
  throw new FormatError({ source: name, field: 'size', message });
}

/** One square: resized to it, or by the shorter edge and cropped. */
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

type Size =
  | { readonly width: number; readonly height: number }
  | { readonly shortest: number }
  | { readonly longest: number };

/** Width and height, as `get_resize_output_image_size` of transformers: the longer edge is truncated. */
function targetOf({ width, height }: RgbImage, size: Size): [width: number, height: number] {
  if ('width' in size) return [size.width, size.height];
  const edge = 'shortest' in size ? size.shortest : size.longest;
  const long = Math.trunc((edge * Math.max(width, height)) / Math.min(width, height));
  return width <= height ? [edge, long] : [long, edge];
}

/** The square in the middle; zeros beyond an image that is smaller. */
function cropCenter(image: RgbImage, size: number): RgbImage {
  const offset = (length: number): number =>
    length >= size ? Math.floor((length - size) / 2) : -Math.ceil((size - length) / 2);
  return cropped(image, offset(image.width), offset(image.height), size);
}

function cropped({ width, height, data }: RgbImage, left: number, top: number, size: number): RgbImage {
  const square = new Uint8Array(3 * size * size);
  const [begin, end] = [Math.max(0, left), Math.min(width, left + size)];
  for (let y = Math.max(0, top); y < Math.min(height, top + size); y++) {
    const row = data.subarray(3 * (y * width + begin), 3 * (y * width + end));
    square.set(row, 3 * ((y - top) * size + begin - left));
  }
  return { width: size, height: size, data: square };
}

/** Idefics3 and SmolVLM: the longest edge to `size`, then a grid of squares of `max_image_size` and the whole image as one. */
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

function resizeTo(image: RgbImage, [width, height]: readonly [number, number], filter: ResizeFilter): RgbImage {
  return resizeImage(image, width, height, filter);
}

/** Largest edge that is ever resized to, in pixels, as in transformers. */
const maxEdge = 4096;

/** The longer edge becomes `edge`, the other one an even number, as `_resize_output_size_rescale_to_max_len`. */
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

/** Both edges as multiples of a tile, as `resize_for_vision_encoder`. */
function wholeTiles({ width, height }: RgbImage, tile: number): [width: number, height: number] {
  const up = (value: number): number => Math.ceil(value / tile) * tile;
  const ratio = width / height;
  if (width >= height) return [up(width), up(Math.trunc(up(width) / ratio))];
  return [up(Math.trunc(up(height) * ratio)), up(height)];
}

/** Largest edge in settings of files: far more than any encoder takes. */
const maxSettingEdge = 8192;

/** Typed access to the settings. */
class Settings {
  readonly #values: ProcessorSettings;
  readonly #source: string;

  constructor(values: ProcessorSettings, source: string) {
    this.#values = values;
    this.#source = source;
  }

  text(...names: readonly string[]): string {
    const found = names.map((name) => this.#values[name]).find((value) => typeof value === 'string');
    if (typeof found === 'string') return found;
    throw this.refusal(names[0] as string, 'a name', undefined);
  }

  flag(name: string, fallback: boolean): boolean {
    const value = this.#values[name] ?? fallback;
    if (typeof value === 'boolean') return value;
    throw this.refusal(name, 'true or false', value);
  }

  filter(fallback: ResizeFilter): ResizeFilter {
    const value = this.#values['resample'];
    const filter = value === undefined ? fallback : filters[value as number];
    if (filter === undefined)
      throw this.refusal('resample', '1 (Lanczos), 2 (bilinear), 3 (bicubic) or 4 (box)', value);
    if (!this.flag('do_resize', true)) throw this.refusal('do_resize', 'true', false);
    return filter;
  }

  sizeOf(name: string): Size {
    const value = this.#values[name];
    if (typeof value === 'number')
      return name === 'crop_size' ? this.#rectangle(name, value, value) : { shortest: this.#edge(name, value) };
    if (isRecord(value)) {
      const { shortest_edge: shortest, longest_edge: longest, height, width } = value;
      if (longest !== undefined && shortest === undefined) return { longest: this.#edge(name, longest) };
      if (shortest !== undefined && longest === undefined) return { shortest: this.#edge(name, shortest) };
      if (height !== undefined && shortest === undefined) return this.#rectangle(name, width, height);
    }
    throw this.refusal(name, 'height and width, a shortest_edge or a longest_edge', value);
  }

  #rectangle(name: string, width: unknown, height: unknown): Size {
    return { width: this.#edge(name, width), height: this.#edge(name, height) };
  }

  #edge(name: string, value: unknown): number {
    if (typeof value === 'number' && Number.isSafeInteger(value) && value > 0 && value <= maxSettingEdge) return value;
    throw this.refusal(name, `a whole number of pixels up to ${maxSettingEdge}`, value);
  }

  normalization(): Normalization {
    const isNormalized = this.flag('do_normalize', true);
    const rescale = this.flag('do_rescale', true) ? (this.#values['rescale_factor'] ?? 1 / 255) : 1;
    if (typeof rescale !== 'number' || !(rescale > 0))
      throw this.refusal('rescale_factor', 'a positive number', rescale);
    const channels = (name: string, neutral: number): readonly number[] => {
      const value = isNormalized ? this.#values[name] : [neutral, neutral, neutral];
      const isValid = Array.isArray(value) && value.length === 3 && value.every((each) => Number.isFinite(each));
      if (!isValid) throw this.refusal(name, 'three numbers', value);
      return value as number[];
    };
    const [mean, std] = [channels('image_mean', 0), channels('image_std', 1)];
    if (std.includes(0)) throw this.refusal('image_std', 'no zeros', std);
    return { rescale, mean, std };
  }

  refusal(field: string, expected: string, actual: unknown): FormatError {
    const message = `expected ${expected}, got ${actual === undefined ? 'nothing' : JSON.stringify(actual)}`;
    return new FormatError({ source: this.#source, field, message });
  }
}
