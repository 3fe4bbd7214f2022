/** Shapes of known models, without their weights: enough to measure speed. */

export interface ModelShape {
  readonly name: string;
  readonly vocabSize: number;
  readonly hiddenDim: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly ffnDim: number;
  readonly ropeBase: number;
  /** The output matrix is the embedding table. */
  readonly isTied: boolean;
  /** Activation of the FFN. Default `silu`. */
  readonly activation?: 'relu';
}

const shapes: readonly ModelShape[] = [
  {
    name: 'tinyllama-1.1b',
    vocabSize: 32000,
    hiddenDim: 2048,
    numLayers: 22,
    numHeads: 32,
    numKvHeads: 4,
    headDim: 64,
    ffnDim: 5632,
    ropeBase: 10000,
    isTied: false,
  },
  {
    name: 'llama-3.2-1b',
    vocabSize: 128256,
    hiddenDim: 2048,
    numLayers: 16,
    numHeads: 32,
    numKvHeads: 8,
    headDim: 64,
    ffnDim: 8192,
    ropeBase: 500000,
    isTied: true,
  },
  {
    name: 'llama-3.2-3b',
    vocabSize: 128256,
    hiddenDim: 3072,
    numLayers: 28,
    numHeads: 24,
    numKvHeads: 8,
    headDim: 128,
    ffnDim: 8192,
    ropeBase: 500000,
    isTied: true,
  },
  {
    name: 'smollm2-135m',
    vocabSize: 49152,
    hiddenDim: 576,
    numLayers: 30,
    numHeads: 9,
    numKvHeads: 3,
    headDim: 64,
    ffnDim: 1536,
    ropeBase: 100000,
    isTied: true,
  },
  {
    name: 'winnow-tiny',
    vocabSize: 2048,
    hiddenDim: 192,
    numLayers: 6,
    numHeads: 6,
    numKvHeads: 2,
    headDim: 32,
    ffnDim: 576,
    ropeBase: 10000,
    isTied: true,
  },
];

export const modelNames: readonly string[] = shapes.map(({ name }) => name);

/**
 * `NAME/LAYERS` is a model truncated to a number of layers, for context lengths at which the whole model would take too
 * long.
 * @throws {Error} for a name that is not in `modelNames`
 */
export function modelShape(name: string): ModelShape {
  const [base = '', layers] = name.split('/');
  const shape = shapes.find((candidate) => candidate.name === base);
  if (shape === undefined) throw new Error(`expected a model of ${modelNames.join(' | ')}, got ${name}`);
  if (layers === undefined) return shape;
  const numLayers = Number(layers);
  if (Number.isInteger(numLayers) && numLayers > 0) return { ...shape, name: `${base}-${numLayers}-layers`, numLayers };
  throw new Error(`expected a number of layers after the /, got ${name}`);
}
