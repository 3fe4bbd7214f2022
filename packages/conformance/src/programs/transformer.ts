/**
 * A small decoder over a paged cache: two layers, grouped heads, RoPE, a gated FFN, logits, arg-max, top-k and
 * log-sum-exp. Several sequences are filled in chunks and then decoded together. The expected result is a forward pass
 * in float64 without any cache, batch or program. Its bound estimates the condition: the pass is repeated with every
 * intermediate value perturbed by the error of float32, and the largest change is multiplied by the safety factor
 * below.
 */
import { ProgramBuilder, ropeFrequencies, type Program, type ProgramTensor } from '@winnow/ops';
import { createRng, encode, decode, sizeOf, type DType, type Rng } from '@winnow/tensor';
import type { Arithmetic } from '../arithmetic.js';
import { close, rngOf } from '../values.js';
import type { ProgramCase, ProgramStep } from './program-case.js';

const hiddenDim = 64;
const ffnDim = 96;
const numHeads = 4;
const numKvHeads = 2;
const headDim = 16;
const numLayers = 2;
const vocabSize = 40;
const blockSize = 4;
const numBlocks = 12;
const maxBlocks = 5;
const eps = 1e-5;
const scale = 0.25;
const layout = 'halves';
const numPerturbations = 6;
/** A few random perturbations do not reach the worst case, although each has the full magnitude. */
const safety = 4;

type Weights = ReadonlyMap<string, Float32Array>;

/** One chunk of one sequence in a step. */
type Chunk = readonly [sequence: number, begin: number, end: number];

const sequences = [
  [3, 17, 0, 39, 8, 8, 21, 4, 30, 11, 2, 2, 19],
  [5, 1, 33, 9, 9, 26, 14],
];

/** Chunks of prefill, then both sequences token by token, then a longer chunk as in the verification of a draft. */
const schedule: readonly (readonly Chunk[])[] = [
  [[0, 0, 5]],
  [
    [1, 0, 3],
    [0, 5, 6],
  ],
  [
    [0, 6, 7],
    [1, 3, 4],
  ],
  [
    [1, 4, 5],
    [0, 7, 8],
  ],
  [
    [0, 8, 12],
    [1, 5, 7],
  ],
  [[0, 12, 13]],
];

function transformerCase(weightDType: DType, cacheDType: DType): ProgramCase {
  // the perturbed passes take longer than a backend does
  const created = new Map<string, ReturnType<ProgramCase['create']>>();
  return {
    name: `transformer, ${weightDType} weights, ${cacheDType} cache`,
    create(arithmetic) {
      const key = JSON.stringify(arithmetic);
      const problem = created.get(key) ?? createTransformer(weightDType, cacheDType, arithmetic);
      created.set(key, problem);
      return problem;
    },
  };
}

function createTransformer(
  weightDType: DType,
  cacheDType: DType,
  arithmetic: Arithmetic,
): ReturnType<ProgramCase['create']> {
  const { weights, contents } = randomWeights(weightDType);
  const program = buildTransformer(weightDType, cacheDType);
  for (const { name, usage, sizeBytes } of program.buffers) {
    if (usage !== 'kv') continue;
    contents.set(name, new Uint8Array(sizeBytes).fill(0xff)); // -1 as a position, NaN as anything else
  }
  const exactLogits = sequences.map((tokens) => forward(weights, tokens, cacheDType, () => 1));
  const rng = rngOf('perturbations');
  const perturbed = Array.from({ length: numPerturbations }, () => {
    const noise = noiseOf(rng, arithmetic);
    return sequences.map((tokens) => forward(weights, tokens, cacheDType, noise));
  });
  const steps = schedule.map((chunks) => stepOf(chunks, exactLogits, perturbed, arithmetic));
  return { program, contents, steps };
}

function noiseOf(rng: Rng, { unit, elementary }: Arithmetic): (numTerms: number) => number {
  return (numTerms) => 1 + (rng.nextInt(2) * 2 - 1) * ((numTerms + 2) * unit + elementary);
}

function matrixShapes(): [string, number, number][] {
  const shapes: [string, number, number][] = [['table', vocabSize, hiddenDim]];
  for (let layer = 0; layer < numLayers; layer++) {
    shapes.push([`q${layer}`, numHeads * headDim, hiddenDim], [`k${layer}`, numKvHeads * headDim, hiddenDim]);
    shapes.push([`v${layer}`, numKvHeads * headDim, hiddenDim], [`o${layer}`, hiddenDim, numHeads * headDim]);
    shapes.push(
      [`gate${layer}`, ffnDim, hiddenDim],
      [`up${layer}`, ffnDim, hiddenDim],
      [`down${layer}`, hiddenDim, ffnDim],
    );
  }
  return shapes;
}

function randomWeights(dtype: DType): { weights: Weights; contents: Map<string, Uint8Array> } {
  const rng = createRng(20261);
  const weights = new Map<string, Float32Array>();
  const contents = new Map<string, Uint8Array>();
  for (const [name, numRows, numInputs] of matrixShapes()) {
    const values = Float32Array.from({ length: numRows * numInputs }, () => rng.nextGaussian() / Math.sqrt(numInputs));
    if (name === 'table') for (let i = 0; i < values.length; i++) values[i] *= 8;
    const bytes = new Uint8Array(sizeOf(dtype, values.length));
    encode(dtype, values, bytes);
    decode(dtype, bytes, values); // the model has the stored weights
    contents.set(name, bytes);
    weights.set(name, values);
  }
  for (const name of [...Array(numLayers).keys()]
    .flatMap((layer) => [`norm${layer}`, `ffnNorm${layer}`])
    .concat('norm')) {
    const values = Float32Array.from({ length: hiddenDim }, () => 1 + rng.nextGaussian() * 0.1);
    weights.set(name, values);
    contents.set(name, new Uint8Array(values.buffer));
  }
  const { frequencies } = ropeFrequencies({ base: 10000, rotaryDim: headDim });
  weights.set('frequencies', frequencies);
  contents.set('frequencies', new Uint8Array(frequencies.buffer));
  return { weights, contents };
}

function buildTransformer(weightDType: DType, cacheDType: DType): Program {
  const b = new ProgramBuilder({ T: 6, B: 2, R: 6 });
  const shapes = new Map(matrixShapes().map(([name, ...shape]) => [name, shape]));
  const matrix = (name: string): ProgramTensor => b.external(name, 'weights', weightDType, shapes.get(name) ?? []);
  const vector = (name: string): ProgramTensor => b.external(name, 'weights', 'f32', [hiddenDim]);
  const perToken = (name: string): ProgramTensor => b.scalar(name, ['T']);
  const [tokens, positions, owners, slots] = ['tokens', 'positions', 'sequences', 'slots'].map(perToken);
  const blockTable = b.scalar('blockTable', ['B', maxBlocks]);
  const contextLengths = b.scalar('contextLengths', ['B']);
  const frequencies = b.external('frequencies', 'weights', 'f32', [headDim / 2]);
  const slotPositions = b.external('slotPositions', 'kv', 'i32', [numBlocks, blockSize]);
  const norm = (x: ProgramTensor, name: string): ProgramTensor =>
    b.activation('rms-norm', { x, weight: vector(name) }, { eps });
  const linear = (x: ProgramTensor, name: string): ProgramTensor => b.activation('matmul', { x, weight: matrix(name) });
  const heads = (x: ProgramTensor, name: string, count: number): ProgramTensor =>
    b.reshape(linear(x, name), ['T', count, headDim]);
  const rotate = (x: ProgramTensor): ProgramTensor => b.activation('rope', { x, positions, frequencies }, { layout });
  b.append('position-append', { slots, positions }, {}, { slotPositions });
  let x = b.activation('embedding-lookup', { table: matrix('table'), tokens });
  for (let layer = 0; layer < numLayers; layer++) {
    b.setLayer(layer);
    const cacheShape = [numBlocks, numKvHeads, blockSize, headDim];
    const keys = b.external(`keys${layer}`, 'kv', cacheDType, cacheShape);
    const values = b.external(`values${layer}`, 'kv', cacheDType, cacheShape);
    const h = norm(x, `norm${layer}`);
    const q = rotate(heads(h, `q${layer}`, numHeads));
    const k = rotate(heads(h, `k${layer}`, numKvHeads));
    b.append('kv-append', { k, v: heads(h, `v${layer}`, numKvHeads), slots }, {}, { keys, values });
    const cache = { keys, values, slotPositions, blockTable, contextLengths };
    const y = attend(b, layer, { q, positions, sequences: owners, ...cache });
    x = b.activation('add', { a: x, b: linear(b.reshape(y, ['T', numHeads * headDim]), `o${layer}`) });
    const f = norm(x, `ffnNorm${layer}`);
    const [gate, up] = [linear(f, `gate${layer}`), linear(f, `up${layer}`)];
    const activated = b.activation('glu', { gate, up }, { kind: 'silu' });
    x = b.activation('add', { a: x, b: linear(activated, `down${layer}`) });
  }
  b.setLayer(-1);
  const rows = b.activation('gather-rows', { x, rows: b.scalar('rows', ['R']) });
  const logits = linear(norm(rows, 'norm'), 'table');
  b.output('logits', logits);
  b.output('logSumExp', b.activation('log-sum-exp', { x: logits }));
  b.output('best', b.append('top-k', { x: logits }, { k: 3 })['values']);
  return b.build();
}

/** The first layer uses dense attention, the second partial attention that is merged. */
function attend(b: ProgramBuilder, layer: number, inputs: Record<string, ProgramTensor>): ProgramTensor {
  if (layer === 0) return b.activation('attention', inputs, { scale });
  const { l, o } = b.append('attention-merge', b.append('attention-partial', inputs, { scale, numParts: 3 }));
  return b.activation('attention-finish', { l, o });
}

/** The slot of position `p` of a sequence, whose blocks are permuted. */
function slotOf(sequence: number, position: number): number {
  return blockOf(sequence, Math.floor(position / blockSize)) * blockSize + (position % blockSize);
}

function blockOf(sequence: number, index: number): number {
  return (7 * (index * sequences.length + sequence) + 3) % numBlocks;
}

function stepOf(
  chunks: readonly Chunk[],
  truth: readonly Float64Array[][],
  perturbed: readonly Float64Array[][][],
  { unit }: Arithmetic,
): ProgramStep {
  const flat = chunks.flatMap(([sequence, begin, end]) =>
    Array.from({ length: end - begin }, (_, i) => ({ sequence, position: begin + i })),
  );
  const lengthOf = (sequence: number): number => {
    const index = schedule.indexOf(chunks);
    const seen = schedule.slice(0, index + 1).flat();
    return Math.max(0, ...seen.filter(([owner]) => owner === sequence).map(([, , end]) => end));
  };
  const rows = flat.map(({ sequence, position }) => {
    const logits = truth[sequence][position];
    const others = perturbed.map((run) => run[sequence][position]);
    const largest = Math.max(...others.flatMap((other) => [...other].map((v, i) => Math.abs(v - logits[i]))));
    return { logits, others, largest };
  });
  const logSumExp = (row: Float64Array): number => Math.log(row.reduce((sum, v) => sum + Math.exp(v), 0));
  const best = (row: Float64Array): Float64Array => row.slice().sort().reverse().subarray(0, 3);
  const output = (length: number, of: (row: Float64Array) => ArrayLike<number>): ReturnType<typeof close> => {
    const ofRows = rows.map(({ logits, others, largest }) => ({ values: of(logits), others: others.map(of), largest }));
    return close(rows.length * length, (index) => {
      const { values, others, largest } = ofRows[Math.floor(index / length)];
      const value = values[index % length];
      const changes = others.map((other) => Math.abs(other[index % length] - value));
      return [value, safety * Math.max(largest / 4, ...changes) + 4 * unit * Math.abs(value)];
    });
  };
  return {
    scalars: {
      ...{ T: [flat.length], B: [sequences.length], R: [flat.length], rows: flat.map((_, t) => t) },
      tokens: flat.map(({ sequence, position }) => sequences[sequence][position]),
      positions: flat.map(({ position }) => position),
      sequences: flat.map(({ sequence }) => sequence),
      slots: flat.map(({ sequence, position }) => slotOf(sequence, position)),
      blockTable: sequences.flatMap((_, sequence) => Array.from({ length: maxBlocks }, (_, i) => blockOf(sequence, i))),
      contextLengths: sequences.map((_, sequence) => lengthOf(sequence)),
    },
    expected: {
      logits: output(vocabSize, (row) => row),
      logSumExp: output(1, (row) => [logSumExp(row)]),
      best: output(3, best),
    },
  };
}

/** Logits of every position of one sequence, from scratch. */
function forward(
  weights: Weights,
  tokens: readonly number[],
  cacheDType: DType,
  noise: (numTerms: number) => number,
): Float64Array[] {
  return new ForwardPass(weights, cacheDType, noise).run(tokens);
}

class ForwardPass {
  readonly #weights: Weights;
  readonly #cacheDType: DType;
  readonly #noise: (numTerms: number) => number;

  constructor(weights: Weights, cacheDType: DType, noise: (numTerms: number) => number) {
    this.#weights = weights;
    this.#cacheDType = cacheDType;
    this.#noise = noise;
  }

  run(tokens: readonly number[]): Float64Array[] {
    const table = this.#weight('table');
    let xs: Float64Array[] = tokens.map((token) =>
      Float64Array.from(table.subarray(token * hiddenDim, (token + 1) * hiddenDim)),
    );
    for (let layer = 0; layer < numLayers; layer++) {
      const attended = this.#attend(xs, layer);
      xs = xs.map((x, p) => this.#feedForward(x, attended[p], layer));
    }
    return xs.map((x) => this.#linear(this.#norm(x, 'norm'), 'table', vocabSize));
  }

  #attend(xs: readonly Float64Array[], layer: number): Float64Array[] {
    const normed = xs.map((x) => this.#norm(x, `norm${layer}`));
    const queries = normed.map((x, p) => this.#rotate(this.#linear(x, `q${layer}`, numHeads * headDim), p));
    const keys = normed.map((x, p) => this.#store(this.#rotate(this.#linear(x, `k${layer}`, numKvHeads * headDim), p)));
    const values = normed.map((x) => this.#store(this.#linear(x, `v${layer}`, numKvHeads * headDim)));
    return queries.map((query, position) => this.#attendOne(query, position, keys, values));
  }

  #attendOne(
    query: Float64Array,
    position: number,
    keys: readonly Float64Array[],
    values: readonly Float64Array[],
  ): Float64Array {
    const y = new Float64Array(numHeads * headDim);
    for (let head = 0; head < numHeads; head++) {
      const kv = (head >> 1) * headDim;
      const scores = keys.slice(0, position + 1).map((key) => {
        let dot = 0;
        for (let i = 0; i < headDim; i++) dot += query[head * headDim + i] * key[kv + i] * this.#noise(headDim);
        return Math.exp(dot * scale);
      });
      const sum = scores.reduce((a, c) => a + c, 0);
      for (const [j, score] of scores.entries()) {
        for (let i = 0; i < headDim; i++) {
          y[head * headDim + i] += (score / sum) * values[j][kv + i] * this.#noise(8 + position);
        }
      }
    }
    return y;
  }

  #feedForward(x: Float64Array, attended: Float64Array, layer: number): Float64Array {
    const projected = this.#linear(attended, `o${layer}`, hiddenDim);
    const middle = x.map((v, i) => (v + projected[i]) * this.#noise(0));
    const f = this.#norm(middle, `ffnNorm${layer}`);
    const gate = this.#linear(f, `gate${layer}`, ffnDim);
    const up = this.#linear(f, `up${layer}`, ffnDim);
    const activated = gate.map((g, i) => (g / (1 + Math.exp(-g))) * up[i] * this.#noise(8));
    const down = this.#linear(activated, `down${layer}`, hiddenDim);
    return middle.map((v, i) => (v + down[i]) * this.#noise(0));
  }

  #weight(name: string): Float32Array {
    return this.#weights.get(name) as Float32Array;
  }

  #linear(x: Float64Array, name: string, numOutputs: number): Float64Array {
    const w = this.#weight(name);
    return Float64Array.from({ length: numOutputs }, (_, o) => {
      let sum = 0;
      for (let i = 0; i < x.length; i++) sum += x[i] * w[o * x.length + i] * this.#noise(x.length);
      return sum;
    });
  }

  #norm(x: Float64Array, name: string): Float64Array {
    const root = Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / hiddenDim + Math.fround(eps));
    return x.map((v, i) => (v / root) * this.#weight(name)[i] * this.#noise(hiddenDim / 2));
  }

  #rotate(x: Float64Array, position: number): Float64Array {
    const y = x.slice();
    const half = headDim / 2;
    for (let begin = 0; begin < x.length; begin += headDim) {
      for (let pair = 0; pair < half; pair++) {
        const angle = position * this.#weight('frequencies')[pair];
        const [re, im] = [x[begin + pair], x[begin + pair + half]];
        y[begin + pair] = (re * Math.cos(angle) - im * Math.sin(angle)) * this.#noise(8);
        y[begin + pair + half] = (im * Math.cos(angle) + re * Math.sin(angle)) * this.#noise(8);
      }
    }
    return y;
  }

  /** Rounds to the dtype of the cache. */
  #store(x: Float64Array): Float64Array {
    const bytes = new Uint8Array(sizeOf(this.#cacheDType, x.length));
    const values = Float32Array.from(x);
    encode(this.#cacheDType, values, bytes);
    decode(this.#cacheDType, bytes, values);
    return Float64Array.from(values);
  }
}

export const transformerCases: readonly ProgramCase[] = [
  transformerCase('f32', 'f32'),
  transformerCase('q8_0', 'f32'),
  transformerCase('f16', 'f16'),
];
