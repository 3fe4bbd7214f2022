/** Encodes images: decodes files, prepares tiles as the model's processor does, and runs the vision program per tile. */
import { visionPatchesName, type VisionPart } from '@winnow/models';
import { createScalarBlock, type Backend, type BufferHandle, type Executable, type ScalarBlock } from '@winnow/ops';
import { ArgumentError, describeValue, FormatError } from '@winnow/tensor';
import {
  createImageProcessor,
  patchesOf,
  type DecodeOptions,
  type ImageProcessor,
  type Normalization,
  type ProcessedImage,
  type RgbImage,
} from '@winnow/vision';
import type { DeviceRecovery } from '../memory/device-recovery.js';
import { rowsOfTile } from './grid-rows.js';

/** A PNG, JPEG or WebP file, or pixels. */
export type ImageInput = Uint8Array | RgbImage;

/** Decodes an image file, as `decodeImage` of `@winnow/vision`. */
export type DecodeImage = (bytes: Uint8Array, options: DecodeOptions) => Promise<RgbImage>;

/** What a folder says about its images. */
export interface ImageSettings {
  /** Name of the file. */
  readonly source: string;
  readonly settings: Readonly<Record<string, unknown>>;
}

export interface ImageEncoderParts {
  readonly vision: VisionPart;
  readonly processor: ImageProcessor;
  readonly decode: DecodeImage | undefined;
  readonly backend: Backend;
  readonly executable: Executable;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly deviceRecovery: DeviceRecovery;
}

/**
 * The processor of a model that takes images.
 * @throws {FormatError} without settings, for settings that are not supported, and when its tiles are not what the encoder takes
 */
export function processorOf(vision: VisionPart, found: ImageSettings | undefined, model: string): ImageProcessor {
  const settings = vision.processor ?? found;
  if (settings === undefined) {
    const field = 'preprocessor_config.json';
    throw new FormatError({ source: model, field, message: 'missing, and the model takes images' });
  }
  const { gridOf, numRows, imageSize } = vision;
  const limit = gridOf === undefined ? {} : { maxPixels: numRows * imageSize ** 2 };
  const processor = createImageProcessor(settings.settings, settings.source, limit);
  if (processor.tileSize === vision.imageSize) return processor;
  const message = `expected ${vision.imageSize} pixels, the size of the encoder, got ${processor.tileSize}`;
  throw new FormatError({ source: settings.source, field: 'size', message });
}

/** Not for concurrent use: callers take turns. */
export class ImageEncoder {
  readonly vision: VisionPart;
  readonly #parts: ImageEncoderParts;
  readonly #block: ScalarBlock;

  constructor(parts: ImageEncoderParts) {
    const { vision, executable } = parts;
    this.vision = vision;
    this.#parts = parts;
    const { scalars, symbols } = executable.program;
    this.#block = createScalarBlock(scalars, symbols);
  }

  /** What distinguishes the rows of equal tiles: how their pixels are normalized. */
  get normalization(): Normalization {
    return this.#parts.processor.normalization;
  }

  /**
   * The tiles of an image.
   * @param argument the name of the image in errors
   * @param numImages images of the prompt. Default 1
   * @throws {ArgumentError | FormatError | CapacityError} for an input that is not an image, and for an image that is
   *   too large
   */
  async process(image: ImageInput, argument: string, numImages = 1): Promise<ProcessedImage> {
    const { decode, processor } = this.#parts;
    const made = (pixels: RgbImage): ProcessedImage => processor.process(pixels, argument, numImages);
    if (!(image instanceof Uint8Array)) return made(checkedPixels(image, argument));
    if (decode !== undefined) return made(await decode(image, { name: argument }));
    throw new ArgumentError({ argument, expected: 'pixels, since this host has no decoder', actual: 'a file' });
  }

  /**
   * The rows `[numRows, dim]` of a tile, as a new array, and one more, that of line ends, where tiles are joined. After a device loss they
   * are computed again.
   */
  async encode(tile: RgbImage, signal: AbortSignal | undefined): Promise<Float32Array> {
    const { vision, processor, backend, executable, buffers, deviceRecovery } = this.#parts;
    const patches = patchesOf(tile, vision.patchSize, processor.normalization, vision.numFrames);
    const numValues = rowsOfTile(tile, vision) * vision.dim;
    const rows = new Float32Array(numValues + (vision.grid === undefined ? 0 : vision.dim));
    const tables = this.#fill(tile);
    return deviceRecovery.run(async () => {
      signal?.throwIfAborted();
      // the first row stays zero: it is the patch of the class token
      const offset = 4 * 3 * vision.numFrames * vision.patchSize ** 2;
      await backend.write(buffers.get(visionPatchesName) as BufferHandle, offset, new Uint8Array(patches.buffer));
      for (const [name, values] of tables) {
        await backend.write(buffers.get(name) as BufferHandle, 0, new Uint8Array(values.buffer));
      }
      await executable.run(this.#block.words, signal === undefined ? {} : { signal });
      await executable.read('embeddings', rows.subarray(0, numValues));
      if (vision.grid !== undefined) await executable.read('newline', rows.subarray(numValues));
      return rows;
    });
  }

  /** Sets the sizes and scalars of a step. @returns the values of further buffers */
  #fill(tile: RgbImage): ReadonlyMap<string, Float32Array> {
    const { vision } = this.#parts;
    const { numTokens, numSequences, numRows, tables } = vision.fill((name) => this.#block.slot(name), tile);
    this.#block.bind('T', numTokens);
    this.#block.bind('B', numSequences);
    // where all images have one size, the number of rows is a constant of the program
    if (vision.gridOf !== undefined) this.#block.bind('R', numRows);
    return tables ?? new Map();
  }
}

function checkedPixels(image: RgbImage, argument: string): RgbImage {
  const { width, height, data } = image ?? {};
  const isSize = (value: number): boolean => Number.isSafeInteger(value) && value > 0;
  const isValid = data instanceof Uint8Array && isSize(width) && isSize(height) && data.length === 3 * width * height;
  if (isValid) return image;
  const expected = 'the bytes of a file, or width, height and their RGB values';
  throw new ArgumentError({ argument, expected, actual: describeValue(image) });
}
