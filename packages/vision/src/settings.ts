/** The settings of image processors. */
import { FormatError, isRecord } from '@winnow/tensor';
import { maxPixels } from './image.js';
import type { Normalization } from './patches.js';
import type { ResizeFilter } from './resize.js';

/** The settings of `preprocessor_config.json`, which may come from another file. */
export type ProcessorSettings = Readonly<Record<string, unknown>>;

/** A size of images: both edges, or only the shortest or longest one. */
export type Size =
  | { readonly width: number; readonly height: number }
  | { readonly shortest: number }
  | { readonly longest: number };

/** Filters by their numbers in Pillow's `Resampling`. */
const filters: Readonly<Record<number, ResizeFilter>> = { 1: 'lanczos', 2: 'bilinear', 3: 'bicubic', 4: 'box' };

/** Maximum edge in the settings of a file: far more than any encoder accepts. */
const maxSettingEdge = 8192;

/** The default minimum number of pixels of Qwen2-VL. */
const usualMinPixels = 56 ** 2;
const usualMaxPixels = 1280 * 28 ** 2;

/** Maximum number of grids in the settings of a file: published models have up to 36. */
const maxGrids = 1024;

/** Typed access to the settings. */
export class Settings {
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

  /** A list of heights and widths, which must be multiples of `unit` and yield grids of at most `maxCells`. */
  grids(name: string, unit: number, maxCells: number): readonly { readonly rows: number; readonly columns: number }[] {
    const value = this.#values[name];
    const isGrid = (size: unknown): size is [number, number] =>
      Array.isArray(size) && size.length === 2 && size.every((edge) => edge > 0 && edge % unit === 0);
    const expected = `pairs of multiples of ${unit} pixels`;
    if (!Array.isArray(value) || value.length === 0 || value.length > maxGrids) {
      throw this.refusal(name, `1 to ${maxGrids} ${expected}`, value);
    }
    return value.map((size) => {
      if (!isGrid(size)) throw this.refusal(name, expected, size);
      const [rows, columns] = [size[0] / unit, size[1] / unit];
      if (rows * columns > maxCells) throw this.refusal(name, `${expected} with at most ${maxCells} tiles`, size);
      return { rows, columns };
    });
  }

  /** A positive whole number. */
  count(name: string, fallback: number): number {
    return this.#edge(name, this.#values[name] ?? fallback);
  }

  /** The minimum and maximum number of pixels of an image, which `size` calls edges; the latter is limited to `maxPixels`. */
  pixelRange(): readonly [min: number, max: number] {
    const size = this.#values['size'] ?? {};
    if (!isRecord(size)) throw this.refusal('size', 'shortest_edge and longest_edge, numbers of pixels', size);
    const pixels = (name: string, edge: string, usual: number): number => {
      const value = this.#values[name] ?? size[edge] ?? usual;
      if (typeof value === 'number' && Number.isSafeInteger(value) && value > 0) return value;
      throw this.refusal(name, 'a positive number of pixels', value);
    };
    const min = pixels('min_pixels', 'shortest_edge', usualMinPixels);
    const max = pixels('max_pixels', 'longest_edge', usualMaxPixels);
    if (min > max) throw this.refusal('min_pixels', `at most ${max}, max_pixels`, min);
    if (min > maxPixels) throw this.refusal('min_pixels', `at most ${maxPixels}`, min);
    return [min, Math.min(max, maxPixels)];
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
