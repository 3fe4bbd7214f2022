/** Programs of FFN blocks, dense and sparse, over weights larger than the caches. */
import { ProgramBuilder, type Backend, type NeuronLayout, type Program } from '@winnow/ops';
import { createRng, sizeOf, type DType, type Rng } from '@winnow/tensor';
import { asFloats, LoadedProgram } from '../../harness/loaded-program.js';
import { randomWeights, type RandomWeights } from '../../models/random-weights.js';

/** Sequential GLU blocks `down(silu(gate x) * up x)`, each with its own weights. */
export interface FfnCase {
  readonly dtype: DType;
  readonly hiddenDim: number;
  readonly ffnDim: number;
  readonly numLayers: number;
  /** Number of blocks with their own weights, default all; the others reuse them in turn. */
  readonly numWeights?: number;
  readonly numTokens: number;
}

/** Bytes of the weights of one block. */
export function layerBytes({ dtype, hiddenDim, ffnDim }: FfnCase): number {
  return 3 * sizeOf(dtype, hiddenDim * ffnDim);
}

const kind = 'silu';

function denseProgram({ dtype, hiddenDim, ffnDim, numLayers, numWeights = numLayers, numTokens }: FfnCase): Program {
  const b = new ProgramBuilder({});
  const x = b.external('x', 'kv', 'f32', [numTokens, hiddenDim]);
  const weights = Array.from({ length: numWeights }, (_, layer) => {
    const weight = (name: string, outputs: number, inputs: number) =>
      b.external(`${name} ${layer}`, 'weights', dtype, [outputs, inputs]);
    return [
      weight('gate', ffnDim, hiddenDim),
      weight('up', ffnDim, hiddenDim),
      weight('down', hiddenDim, ffnDim),
    ] as const;
  });
  let y = x;
  for (let layer = 0; layer < numLayers; layer++) {
    const [gateWeight, upWeight, downWeight] = weights[layer % numWeights]!;
    b.setLayer(layer);
    const gate = b.activation('matmul', { x, weight: gateWeight });
    const up = b.activation('matmul', { x, weight: upWeight });
    const h = b.activation('glu', { gate, up }, { kind });
    y = b.activation('matmul', { x: h, weight: downWeight });
  }
  b.output('y', y);
  return b.build();
}

type DraftTensor = ReturnType<ProgramBuilder['activation']>;

/** Adds a block and returns its output. */
type AddBlock = (x: DraftTensor, active: { readonly rows: DraftTensor; readonly count: DraftTensor }) => DraftTensor;

/** A block whose three rows of a neuron are interleaved, by one op. */
function interleavedBlock(b: ProgramBuilder, { dtype, hiddenDim, ffnDim }: FfnCase, index: number): AddBlock {
  const weight = b.external(`neurons ${index}`, 'weights', dtype, [ffnDim, 3, hiddenDim]);
  return (x, active) => b.activation('sparse-feed-forward', { x, weight, ...active }, { kind });
}

/** A block with separate matrices for gate, up and the transposed down, by four ops. */
function separateBlock(b: ProgramBuilder, { dtype, hiddenDim, ffnDim }: FfnCase, index: number): AddBlock {
  const matrix = (name: string) => b.external(`neurons ${name} ${index}`, 'weights', dtype, [ffnDim, hiddenDim]);
  const [gateRows, upRows, downRows] = [matrix('gate'), matrix('up'), matrix('down')];
  return (x, active) => {
    const gate = b.activation('sparse-matmul', { x, weight: gateRows, ...active });
    const up = b.activation('sparse-matmul', { x, weight: upRows, ...active });
    const h = b.activation('glu', { gate, up }, { kind });
    return b.activation('sparse-combine', { h, weight: downRows, ...active });
  };
}

/** A sparse program, whose active neurons are those with scores of at least 0. */
function sparseProgram(shape: FfnCase, layout: NeuronLayout): Program {
  const { hiddenDim, ffnDim, numLayers, numWeights = numLayers, numTokens } = shape;
  const b = new ProgramBuilder({});
  const x = b.external('x', 'kv', 'f32', [numTokens, hiddenDim]);
  const thresholds = b.external('thresholds', 'weights', 'f32', [ffnDim]);
  const blockOf = layout === 'interleaved' ? interleavedBlock : separateBlock;
  const blocks = Array.from({ length: numWeights }, (_, index) => blockOf(b, shape, index));
  let y = x;
  for (let layer = 0; layer < numLayers; layer++) {
    b.setLayer(layer);
    const scores = b.external(`scores ${layer}`, 'kv', 'f32', [1, ffnDim]);
    const { ids: rows, count } = b.append('active-neurons', { scores, thresholds }) as Record<
      'ids' | 'count',
      typeof x
    >;
    y = blocks[layer % numWeights]!(y, { rows, count });
  }
  b.output('y', y);
  return b.build();
}

/** `Q (P x)` of `rank` for all layers: low-rank predictors of active neurons. */
function predictorProgram({ hiddenDim, ffnDim, numLayers, numTokens }: FfnCase, rank: number): Program {
  const b = new ProgramBuilder({});
  const x = b.external('x', 'kv', 'f32', [numTokens, hiddenDim]);
  let y = x;
  for (let layer = 0; layer < numLayers; layer++) {
    const low = b.activation('matmul', { x, weight: b.external(`p ${layer}`, 'weights', 'q8_0', [rank, hiddenDim]) });
    y = b.activation('matmul', { x: low, weight: b.external(`q ${layer}`, 'weights', 'q8_0', [ffnDim, rank]) });
  }
  b.output('y', y);
  return b.build();
}

const pools = new Map<DType, RandomWeights>();
const inputs = randomWeights('f32', 1, 2);

function fillWith(dtype: DType): (name: string, target: Uint8Array) => void {
  const weights = pools.get(dtype) ?? randomWeights(dtype, 0.01, 1); // small enough that blocks do not amplify
  pools.set(dtype, weights);
  return (name, target) => {
    if (name === 'x') inputs.fill(target);
    else if (name === 'thresholds' || name.startsWith('scores')) target.fill(0);
    else weights.fill(target);
  };
}

export function loadDense(backend: Backend, ffn: FfnCase): Promise<LoadedProgram> {
  return LoadedProgram.load(backend, denseProgram(ffn), fillWith(ffn.dtype), 'y');
}

export function loadPredictor(backend: Backend, ffn: FfnCase, rank: number): Promise<LoadedProgram> {
  return LoadedProgram.load(backend, predictorProgram(ffn, rank), fillWith('q8_0'), 'y');
}

/** A sparse program whose active neurons can be redrawn, so that those of the next run are not cached. */
export interface SparseFfn {
  readonly program: LoadedProgram;
  /**
   * The same program over the same weights with different neurons: run just before, it wakes the threads without reading what
   * `program` will read.
   */
  readonly other: LoadedProgram;
  /** Draws `count` neurons for every layer of both. */
  draw(count: number): Promise<void>;
}

export async function loadSparse(backend: Backend, ffn: FfnCase, layout: NeuronLayout): Promise<SparseFfn> {
  const program = await LoadedProgram.load(backend, sparseProgram(ffn, layout), fillWith(ffn.dtype), 'y');
  const neurons = new Map([...program.buffers].filter(([name]) => name.startsWith('neurons')));
  const other = await LoadedProgram.load(backend, sparseProgram(ffn, layout), fillWith(ffn.dtype), 'y', neurons);
  const rng = createRng(3);
  const bytes = new Uint8Array(4 * ffn.ffnDim);
  return {
    program,
    other,
    async draw(count) {
      for (const { buffers } of [program, other]) {
        for (let layer = 0; layer < ffn.numLayers; layer++) {
          drawScores(asFloats(bytes), count, rng);
          const buffer = buffers.get(`scores ${layer}`);
          if (buffer !== undefined) await backend.write(buffer, 0, bytes);
        }
      }
    },
  };
}

/** 1 for `count` random neurons, -1 for the others. */
function drawScores(scores: Float32Array, count: number, rng: Rng): void {
  for (let i = 0; i < scores.length; i++) scores[i] = i < count ? 1 : -1;
  for (let i = scores.length - 1; i > 0; i--) {
    const other = rng.nextInt(i + 1);
    [scores[i], scores[other]] = [scores[other]!, scores[i]!];
  }
}
