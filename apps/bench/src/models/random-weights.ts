/**
 * Random weights of any encodable dtype, fast enough for files of gigabytes: a pool of normally distributed values is
 * quantized once, and tensors are assembled from pieces that start at random blocks of it.
 */
import { createRng, dtypeInfo, encode, sizeOf, type DType, type Rng, type RngState } from '@winnow/tensor';

/** Number of values in the pool: enough that rows of an embedding table differ. */
const poolValues = 2 ** 20;
/** Number of values per piece, at least one block: several pieces per row, so that rows hardly repeat. */
const minPieceValues = 64;
/** Approximate number of bytes per part. */
const partBytes = 4 * 2 ** 20;

export interface RandomWeights {
  /** Fills the target with valid blocks; the last one may be truncated. */
  fill(target: Uint8Array): void;
  /** The same in parts, for tensors that should not be in memory as a whole. */
  parts(sizeBytes: number): AsyncGenerator<Uint8Array>;
}

interface Pool {
  readonly blocks: Uint8Array;
  /** State of the random numbers after the values of the pool. */
  readonly state: RngState;
}

interface Draws {
  readonly values: Float64Array;
  readonly state: RngState;
}

/** Drawing takes longer than most quick measurements: values are drawn once per seed, and encoded once per pool. */
const draws = new Map<number, Draws>();
const pools = new Map<string, Pool>();

function draw(seed: number): Draws {
  const rng = createRng(seed);
  const values = Float64Array.from({ length: poolValues }, () => rng.nextGaussian());
  return { values, state: rng.state() };
}

function drawPool(dtype: DType, deviation: number, seed: number): Pool {
  const drawn = draws.get(seed) ?? draw(seed);
  draws.set(seed, drawn);
  const values = new Float32Array(poolValues);
  for (let i = 0; i < values.length; i++) values[i] = (drawn.values[i] as number) * deviation;
  const blocks = new Uint8Array(sizeOf(dtype, poolValues));
  encode(dtype, values, blocks);
  return { blocks, state: drawn.state };
}

/**
 * @param deviation standard deviation of the values
 * @throws {DTypeError} when the dtype cannot be encoded
 */
export function randomWeights(dtype: DType, deviation: number, seed: number): RandomWeights {
  const key = `${dtype} ${deviation} ${seed}`;
  const drawn = pools.get(key) ?? drawPool(dtype, deviation, seed);
  pools.set(key, drawn);
  const { blocks: pool, state } = drawn;
  const rng = createRng(seed);
  rng.restore(state);
  const { blockSize, blockBytes } = dtypeInfo(dtype);
  const pieceValues = Math.max(minPieceValues, blockSize);
  const pieceBytes = sizeOf(dtype, pieceValues);
  const numStarts = (poolValues - pieceValues) / blockSize + 1;
  const fill = (target: Uint8Array): void => {
    for (let begin = 0; begin < target.length; begin += pieceBytes) {
      const start = rng.nextInt(numStarts) * blockBytes;
      target.set(pool.subarray(start, start + Math.min(pieceBytes, target.length - begin)), begin);
    }
  };
  return {
    fill,
    async *parts(sizeBytes) {
      const wholeBytes = Math.floor(partBytes / pieceBytes) * pieceBytes; // parts begin at block boundaries
      for (let begin = 0; begin < sizeBytes; begin += wholeBytes) {
        const part = new Uint8Array(Math.min(wholeBytes, sizeBytes - begin));
        fill(part);
        yield part;
      }
    },
  };
}

/** Values around one, for the scales of norms. */
export function randomScales(rng: Rng, count: number): Float32Array {
  return Float32Array.from({ length: count }, () => 1 + 0.1 * rng.nextGaussian());
}
