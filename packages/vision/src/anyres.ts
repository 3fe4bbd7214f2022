/** The tile grids of LLaVA-NeXT and LLaVA-OneVision: the size from the settings that preserves most of the image. */
import { checkSize, maxPixels, type RgbImage } from './image.js';
import { resizeImage } from './resize.js';
import type { Settings } from './settings.js';
import { cropped, type Resizing } from './tiles.js';

/** Maximum number of tiles in the settings of a file: published models have up to 36. */
const maxTiles = 144;

/** Splits the only image of a prompt into tiles; in LLaVA-OneVision, each of several images becomes one square. */
export function anyres(read: Settings, kind: string): Resizing {
  const filter = read.filter('bicubic');
  const tileSize = sideOf(read);
  const grids = read.grids('image_grid_pinpoints', tileSize, maxTiles);
  const mean = read.normalization().mean;
  const square = (image: RgbImage): RgbImage => resizeImage(image, tileSize, tileSize, filter);
  return {
    tileSize,
    process(image, numImages) {
      if (kind === 'LlavaOnevisionImageProcessor' && numImages > 1) {
        return { tiles: [square(paddedToSquare(image, mean))], rows: 0, columns: 0 };
      }
      const sizes = grids.map((grid) => ({ ...grid, width: grid.columns * tileSize, height: grid.rows * tileSize }));
      const { rows, columns, width, height } = bestSize(image, sizes);
      const fitting = resizeImage(image, ...fittingSize(image, width, height), filter);
      const left = Math.floor((width - fitting.width) / 2);
      const top = Math.floor((height - fitting.height) / 2);
      const tiles = Array.from({ length: rows * columns }, (_, tile) => {
        const [row, column] = [Math.floor(tile / columns), tile % columns];
        return cropped(fitting, column * tileSize - left, row * tileSize - top, tileSize);
      });
      return { tiles: [...tiles, square(image)], rows, columns };
    },
  };
}

/** Pixels per side of a tile; the whole image is also resized to a tile. */
function sideOf(read: Settings): number {
  const size = read.sizeOf('size');
  if ('longest' in size) throw read.refusal('size', 'a square or a shortest_edge', size);
  const side = 'shortest' in size ? size.shortest : size.width;
  const crop = read.flag('do_center_crop', false) ? read.sizeOf('crop_size') : { width: side, height: side };
  const isSquare = (each: object): boolean => 'width' in each && 'height' in each && each.width === each.height;
  if ('width' in size && !isSquare(size)) throw read.refusal('size', 'a square', size);
  if (isSquare(crop) && 'width' in crop && crop.width === side) return side;
  throw read.refusal('crop_size', `${side} x ${side} pixels, as size`, crop);
}

interface GridSize {
  readonly width: number;
  readonly height: number;
}

/** The size that preserves most pixels of the image, and on ties wastes fewest: `select_best_resolution`. */
function bestSize<S extends GridSize>(image: RgbImage, sizes: readonly S[]): S {
  const numPixels = image.width * image.height;
  let best = sizes[0] as S;
  let [mostKept, leastWasted] = [0, Infinity];
  for (const size of sizes) {
    const scale = Math.min(size.width / image.width, size.height / image.height);
    const kept = Math.min(Math.trunc(image.width * scale) * Math.trunc(image.height * scale), numPixels);
    const wasted = size.width * size.height - kept;
    if (kept > mostKept || (kept === mostKept && wasted < leastWasted)) {
      [best, mostKept, leastWasted] = [size, kept, wasted];
    }
  }
  return best;
}

/** The largest size with the proportions of the image that fits in the grid: `get_patch_output_size`. */
function fittingSize(image: RgbImage, width: number, height: number): [width: number, height: number] {
  const [across, down] = [width / image.width, height / image.height];
  if (across < down) return [width, Math.min(Math.ceil(image.height * across), height)];
  return [Math.min(Math.ceil(image.width * down), width), height];
}

/** Centers the image in a square of the mean color. @throws {CapacityError} for a square of more than `maxPixels` */
function paddedToSquare(image: RgbImage, mean: readonly number[]): RgbImage {
  const { width, height, data } = image;
  if (width === height) return image;
  const side = Math.max(width, height);
  checkSize('image as a square', side, side, maxPixels);
  const row = Uint8Array.from({ length: 3 * side }, (_, index) => Math.trunc((mean[index % 3] as number) * 255));
  const square = new Uint8Array(3 * side * side);
  for (let y = 0; y < side; y++) square.set(row, 3 * y * side);
  const [left, top] = [Math.floor((side - width) / 2), Math.floor((side - height) / 2)];
  for (let y = 0; y < height; y++) {
    square.set(data.subarray(3 * y * width, 3 * (y + 1) * width), 3 * ((top + y) * side + left));
  }
  return { width: side, height: side, data: square };
}
