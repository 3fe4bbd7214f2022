/** Puts the rows of images in the place of their tokens in prompts. */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import type { ProcessedImage, RgbImage } from '@winnow/vision';
import { joinTiles, numRowsOf } from './grid-rows.js';
import type { ImageEncoder, ImageInput } from './image-encoder.js';
import { hashOf, type ImageRows } from './image-rows.js';

export interface ImagePromptParts {
  readonly encoder: ImageEncoder;
  readonly rows: ImageRows;
  /** The id that stands for an image, or for a tile of an image, in the tokens of a prompt; and its text. */
  readonly placeId: number;
  readonly tokenText: string;
  readonly tokenizer: Tokenizer;
  /** Tokens of the context, which the rows of a prompt must fit in. */
  readonly contextSize: number;
  /** Runs a task when no step of the model runs. */
  readonly exclusive: <T>(task: () => Promise<T>) => Promise<T>;
}

export class ImagePrompts {
  readonly #parts: ImagePromptParts;

  constructor(parts: ImagePromptParts) {
    this.#parts = parts;
  }

  /** The text by which templates and prompts name an image. */
  get tokenText(): string {
    return this.#parts.tokenText;
  }

  /** Whether an id is that of a row in memory. */
  readonly has = (id: number): boolean => this.#parts.rows.has(id);

  /**
   * The tokens of a prompt with the rows of its images instead of their tokens, in the same order. Images that are known are not
   * encoded again.
   * @throws {ArgumentError} unless the prompt has one image token per image
   * @throws {CapacityError} when the images alone exceed the context, before the one that does not fit is encoded
   * @throws as `ImageEncoder.process`
   */
  async expand(ids: Int32Array, images: readonly ImageInput[], signal: AbortSignal | undefined): Promise<Int32Array> {
    const { encoder, placeId, tokenText, contextSize } = this.#parts;
    const numPlaces = ids.reduce((count, id) => count + Number(id === placeId), 0);
    if (numPlaces !== images.length) {
      const expected = `${numPlaces}, one per token ${JSON.stringify(tokenText)} of the prompt`;
      throw new ArgumentError({ argument: 'images', expected, actual: String(images.length) });
    }
    const expanded: number[] = [];
    let next = 0;
    let needed = 0;
    for (const id of ids) {
      if (id !== placeId) {
        expanded.push(id);
        continue;
      }
      signal?.throwIfAborted();
      const argument = `images[${next}]`;
      const processed = await encoder.process(images[next++] as ImageInput, argument, images.length);
      needed += numRowsOf(processed, encoder.vision);
      if (needed > contextSize) {
        throw new CapacityError({ resource: 'context', needed, available: contextSize, unit: 'tokens' });
      }
      for (const each of await this.#idsOfImage(processed, signal)) expanded.push(each);
    }
    return Int32Array.from(expanded);
  }

  /** The tokens of an image: the rows of its tiles, and the text around them. */
  async #idsOfImage(image: ProcessedImage, signal: AbortSignal | undefined): Promise<number[]> {
    const { encoder, tokenizer, placeId, tokenText } = this.#parts;
    if (encoder.vision.grid !== undefined) return [...(await this.#idsOfGrid(image, signal))];
    const tiles: Int32Array[] = [];
    for (const tile of image.tiles) tiles.push(await this.#idsOf(tile, signal));
    if (encoder.vision.frame === undefined) return tiles.flatMap((ids) => [...ids]);
    const framed = tokenizer.encode(tilesText(image, tokenText), { addSpecialTokens: false });
    let next = 0;
    return [...framed].flatMap((id) => (id === placeId ? [...(tiles[next++] as Int32Array)] : [id]));
  }

  /** The tokens of an image whose tiles are joined, which are remembered together. Other steps of the model may run between tiles. */
  async #idsOfGrid(image: ProcessedImage, signal: AbortSignal | undefined): Promise<Int32Array> {
    const { encoder, rows, exclusive } = this.#parts;
    const hash = await hashOf(joinedPixels(image), encoder.normalization);
    const known = rows.find(hash);
    if (known !== undefined) return known;
    const tiles: Float32Array[] = [];
    for (const tile of image.tiles) tiles.push(await exclusive(() => encoder.encode(tile, signal)));
    return rows.find(hash) ?? rows.add(hash, joinTiles(image, tiles, encoder.vision));
  }

  async #idsOf(tile: RgbImage, signal: AbortSignal | undefined): Promise<Int32Array> {
    const { encoder, rows, exclusive } = this.#parts;
    const hash = await hashOf(tile, encoder.normalization);
    const known = rows.find(hash);
    if (known !== undefined) return known;
    const grid = encoder.vision.gridOf?.(tile);
    return exclusive(async () => rows.find(hash) ?? rows.add(hash, await encoder.encode(tile, signal), grid));
  }
}

/** The pixels of all tiles, with the size of the image, on which the padding of its grid depends. */
function joinedPixels({ tiles, width, height }: ProcessedImage): RgbImage {
  const data = new Uint8Array(tiles.reduce((sum, tile) => sum + tile.data.length, 0));
  let to = 0;
  for (const tile of tiles) {
    data.set(tile.data, to);
    to += tile.data.length;
  }
  return { width, height, data };
}

/** A grid of tiles row by row, and then the whole image, as Idefics3 and SmolVLM were trained: `processing_idefics3.py`. */
function tilesText({ rows, columns }: ProcessedImage, tile: string): string {
  const mark = '<fake_token_around_image>';
  let text = '';
  for (let row = 1; row <= rows; row++) {
    for (let column = 1; column <= columns; column++) text += `${mark}<row_${row}_col_${column}>${tile}`;
    text += '\n';
  }
  return `${text}${rows > 0 ? '\n' : ''}${mark}<global-img>${tile}${mark}`;
}
