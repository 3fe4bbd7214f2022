/** The rows of an image that was cut into a grid of tiles: those of the whole image, then those of the grid line by line. */
import type { VisionGrid, VisionPart } from '@winnow/models';
import { CapacityError } from '@winnow/tensor';
import type { ProcessedImage, RgbImage } from '@winnow/vision';

/** The part of a grid that shows the image, in rows of the encoder, and the lines that are made of it. */
interface GridLines {
  /** Width of the whole grid in rows. */
  readonly gridWidth: number;
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Size of the lines: smaller than the part where rows are averaged down. */
  readonly numColumns: number;
  readonly numLines: number;
}

/** The number of rows of a tile. @throws {CapacityError} for more than the encoder has room for */
export function rowsOfTile(tile: RgbImage, { gridOf, numRows }: VisionPart): number {
  if (gridOf === undefined) return numRows;
  const { rows, columns } = gridOf(tile);
  if (rows * columns <= numRows) return rows * columns;
  throw new CapacityError({ resource: 'image', needed: rows * columns, available: numRows, unit: 'rows' });
}

/** The number of rows of an image. @throws {CapacityError} for a tile that the encoder has no room for */
export function numRowsOf(image: ProcessedImage, vision: VisionPart): number {
  const { grid, numRows } = vision;
  if (grid === undefined) return image.tiles.reduce((sum, tile) => sum + rowsOfTile(tile, vision), 0);
  if (image.rows === 0) return numRows + 1;
  const { numLines, numColumns } = linesOf(image, grid, Math.sqrt(numRows));
  return numRows + numLines * (numColumns + 1);
}

/**
 * The part of the grid without its padding, and its lines: `unpad_image` and `pack_image_features` of transformers 5.18.0
 * (modeling_llava_onevision.py).
 * @param side rows of the encoder along a side of a tile
 */
function linesOf(image: ProcessedImage, { maxTiles }: VisionGrid, side: number): GridLines {
  const [gridWidth, gridHeight] = [image.columns * side, image.rows * side];
  let [left, top] = [0, 0];
  if (image.width / image.height > gridWidth / gridHeight) {
    top = Math.floor((gridHeight - rounded(image.height * (gridWidth / image.width))) / 2);
  } else {
    left = Math.floor((gridWidth - rounded(image.width * (gridHeight / image.height))) / 2);
  }
  const [width, height] = [gridWidth - 2 * left, gridHeight - 2 * top];
  const part = { gridWidth, left, top, width, height };
  const ratio = maxTiles === undefined ? 1 : Math.sqrt((height * width) / (maxTiles * side ** 2));
  if (ratio <= 1.1) return { ...part, numColumns: width, numLines: height };
  return { ...part, numColumns: floorDivide(width, ratio), numLines: floorDivide(height, ratio) };
}

/** `int(round(value, 7))` of Python. */
function rounded(value: number): number {
  return Math.trunc(Number(value.toFixed(7)));
}

/** `value // divisor` of Python, whose remainder is exact. */
function floorDivide(value: number, divisor: number): number {
  return Math.round((value - (value % divisor)) / divisor);
}

/**
 * Joins the rows of tiles.
 * @param tiles `[numRows + 1, dim]` each, the last row being that of line ends
 * @returns `[numRowsOf(image, vision), dim]`
 */
export function joinTiles(image: ProcessedImage, tiles: readonly Float32Array[], vision: VisionPart): Float32Array {
  const { dim, numRows, grid } = vision;
  const whole = tiles.at(-1) as Float32Array;
  const lineEnd = whole.subarray(numRows * dim);
  const joined = new Float32Array(numRowsOf(image, vision) * dim);
  joined.set(whole.subarray(0, numRows * dim));
  if (image.rows === 0) {
    joined.set(lineEnd, numRows * dim);
    return joined;
  }
  const side = Math.sqrt(numRows);
  const lines = linesOf(image, grid as VisionGrid, side);
  const rowOf = (y: number, x: number): Float32Array => {
    const [down, across] = [lines.top + y, lines.left + x];
    const tile = tiles[Math.floor(down / side) * image.columns + Math.floor(across / side)] as Float32Array;
    const row = (down % side) * side + (across % side);
    return tile.subarray(row * dim, (row + 1) * dim);
  };
  const [ys, xs] = [weightsOf(lines.height, lines.numLines), weightsOf(lines.width, lines.numColumns)];
  let to = numRows * dim;
  for (const y of ys) {
    for (const x of xs) {
      addWeighted(joined.subarray(to, to + dim), (1 - y.weight) * (1 - x.weight), rowOf(y.first, x.first));
      addWeighted(joined.subarray(to, to + dim), (1 - y.weight) * x.weight, rowOf(y.first, x.second));
      addWeighted(joined.subarray(to, to + dim), y.weight * (1 - x.weight), rowOf(y.second, x.first));
      addWeighted(joined.subarray(to, to + dim), y.weight * x.weight, rowOf(y.second, x.second));
      to += dim;
    }
    joined.set(lineEnd, to);
    to += dim;
  }
  return joined;
}

/** Two neighbors, of which the second counts by `weight`, and the first by the rest. */
interface Neighbors {
  readonly first: number;
  readonly second: number;
  readonly weight: number;
}

/** Linear interpolation between the centers of `from` cells at those of `to`: `F.interpolate(mode='bilinear')` of torch. */
function weightsOf(from: number, to: number): Neighbors[] {
  return Array.from({ length: to }, (_, index) => {
    const place = Math.max(0, ((index + 0.5) * from) / to - 0.5);
    const first = Math.min(Math.floor(place), from - 1);
    return { first, second: Math.min(first + 1, from - 1), weight: place - first };
  });
}

function addWeighted(sum: Float32Array, weight: number, row: Float32Array): void {
  if (weight === 0) return;
  for (let index = 0; index < sum.length; index++)
    sum[index] = (sum[index] as number) + weight * (row[index] as number);
}
