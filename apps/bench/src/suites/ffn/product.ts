/**
 * SwiGLU blocks with low-rank predictors of gate and up: the time of prediction, selection and active neurons, compared
 * with dense blocks.
 */
import { ProgramBuilder, type Backend, type Program, type ProgramTensor } from '@winnow/ops';
import { createRng } from '@winnow/tensor';
import { milliseconds, type Figure } from '../../harness/figure.js';
import { asFloats, LoadedProgram } from '../../harness/loaded-program.js';
import { measure, type Contender } from '../../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../../harness/suite.js';
import { randomWeights } from '../../models/random-weights.js';
import { loadDense, type FfnCase } from './programs.js';

const suite = 'ffn-product';
/**
 * Ranks of the two predictors. The rank that a model needs depends on its quality, which is not measured here.
 */
const ranks = [256, 128];
/** The targets for SwiGLU: 40 and 50 % skipped. */
const ratios = [0.6, 0.5];

/** The blocks of a `low-rank-product` calibration, over random weights and with different inputs in every run. */
export const ffnProduct: Suite = {
  name: suite,
  summary: 'SwiGLU blocks with 60 and 50 % of the neurons, including prediction of gate and up',
  run: measureProducts,
};

interface ProductCase extends FfnCase {
  readonly rank: number;
}

/** `act(Qg (Pg x)) * (Qu (Pu x))`: P has 8 bits, Q has 4, as in calibrations. */
function appendScores(
  b: ProgramBuilder,
  { hiddenDim, ffnDim, rank }: ProductCase,
  layer: number,
  x: ProgramTensor,
): ProgramTensor {
  const of = (part: string): ProgramTensor => {
    const p = b.external(`${part}.p ${layer}`, 'weights', 'q8_0', [rank, hiddenDim]);
    const q = b.external(`${part}.q ${layer}`, 'weights', 'q4_0', [ffnDim, rank]);
    return b.activation('matmul', { x: b.activation('matmul', { x, weight: p }), weight: q });
  };
  const [gate, up] = [of('gate'), of('up')];
  return b.activation('glu', { gate, up }, { kind: 'silu' });
}

/** All layers read the same x, so that their predictions are known in advance. */
function productProgram(ffn: ProductCase): Program {
  const { dtype, hiddenDim, ffnDim, numLayers, numTokens } = ffn;
  const b = new ProgramBuilder({});
  const x = b.external('x', 'kv', 'f32', [numTokens, hiddenDim]);
  let y: ProgramTensor = x;
  for (let layer = 0; layer < numLayers; layer++) {
    const scores = appendScores(b, ffn, layer, x);
    const thresholds = b.external(`thresholds ${layer}`, 'weights', 'f32', [ffnDim]);
    const { ids: rows, count } = b.append('active-neurons', { scores, thresholds }, { absolute: true }) as Record<
      'ids' | 'count',
      ProgramTensor
    >;
    b.output(`count ${layer}`, count);
    const weight = b.external(`neurons ${layer}`, 'weights', dtype, [ffnDim, 3, hiddenDim]);
    y = b.activation('sparse-feed-forward', { x, weight, rows, count }, { kind: 'silu' });
  }
  b.output('y', y);
  return b.build();
}

/** The predictions of all layers. */
function scoresProgram(ffn: ProductCase): Program {
  const b = new ProgramBuilder({});
  const x = b.external('x', 'kv', 'f32', [ffn.numTokens, ffn.hiddenDim]);
  for (let layer = 0; layer < ffn.numLayers; layer++) b.output(`scores ${layer}`, appendScores(b, ffn, layer, x));
  return b.build();
}

/** An input, and the thresholds of its layers. */
interface Draw {
  readonly x: Uint8Array;
  readonly thresholds: readonly Uint8Array[];
}

interface ProductBlocks {
  readonly program: LoadedProgram;
  /** Draws an input, with thresholds that exactly `count` neurons of every layer reach. */
  draw(count: number): Promise<Draw>;
  /** Sets the input of the next run. */
  put(draw: Draw): Promise<void>;
}

const weights = { q8_0: randomWeights('q8_0', 0.02, 1), q4_0: randomWeights('q4_0', 0.02, 4) };

async function loadProductBlocks(backend: Backend, ffn: ProductCase): Promise<ProductBlocks> {
  const { hiddenDim, ffnDim, numLayers } = ffn;
  const fill = (name: string, target: Uint8Array): void => {
    if (name === 'x' || name.startsWith('thresholds')) target.fill(0);
    else weights[name.includes('.q ') ? 'q4_0' : 'q8_0'].fill(target);
  };
  const program = await LoadedProgram.load(backend, productProgram(ffn), fill, 'y');
  const { buffers, scalars } = program;
  const predictor = await backend.prepare(scoresProgram(ffn), { buffers, onUnsupported: 'error' });
  const rng = createRng(3);
  const write = async (name: string, bytes: Uint8Array): Promise<void> => {
    const buffer = buffers.get(name);
    if (buffer !== undefined) await backend.write(buffer, 0, bytes);
  };
  return {
    program,
    async draw(count) {
      const x = new Uint8Array(4 * hiddenDim);
      asFloats(x).set(Float32Array.from({ length: hiddenDim }, () => rng.nextGaussian()));
      await write('x', x);
      await predictor.run(scalars.words);
      const thresholds: Uint8Array[] = [];
      const scores = new Float32Array(ffnDim);
      for (let layer = 0; layer < numLayers; layer++) {
        await predictor.read(`scores ${layer}`, scores);
        const bytes = new Uint8Array(4 * ffnDim);
        asFloats(bytes).fill(scores.map(Math.abs).sort()[ffnDim - count] ?? 0);
        thresholds.push(bytes);
      }
      return { x, thresholds };
    },
    async put({ x, thresholds }) {
      await write('x', x);
      for (const [layer, bytes] of thresholds.entries()) await write(`thresholds ${layer}`, bytes);
    },
  };
}

async function* measureProducts(context: SuiteContext): AsyncIterable<Figure> {
  const { options } = context;
  const [hiddenDim, ffnDim, numLayers] = options.quick ? [256, 512, 2] : [4096, 14336, 2];
  const ofRanks = options.quick ? [32] : ranks;
  for (const threads of options.threads) {
    const shape: FfnCase = { dtype: 'q8_0', hiddenDim, ffnDim, numLayers, numTokens: 1 };
    const backend = await context.createBackend(threads, 'workers');
    try {
      const dense = await loadDense(backend, shape);
      // the first run after others wakes the threads, as in `ffn`
      const contenders: Record<string, Contender> = { dense: { run: async () => (await dense.run(), dense.run()) } };
      for (const rank of ofRanks) {
        const blocks = await loadProductBlocks(backend, { ...shape, rank });
        for (const ratio of ratios) contenders[`${rank} ${ratio}`] = contender(blocks, Math.round(ratio * ffnDim));
      }
      const timings = await measure(contenders, measureOptions(options, 9));
      const whole = timings['dense']!;
      const name = `q8_0 ${hiddenDim}x${ffnDim}, ${threadsText(threads)}`;
      const block = milliseconds(whole, numLayers);
      yield { suite, case: `${name}: dense block`, ...block, unit: 'ms', ratio: 1, ratioOf: 'itself' };
      for (const rank of ofRanks) {
        for (const ratio of ratios) {
          const timing = timings[`${rank} ${ratio}`]!;
          const label = `${name}: ${Math.round(100 * ratio)} % active, predictors of rank ${rank}`;
          const ratioToDense = { ratio: timing.medianMs / whole.medianMs, ratioOf: 'dense' };
          yield { suite, case: label, ...milliseconds(timing, numLayers), unit: 'ms', ...ratioToDense };
          const gained = { value: whole.medianMs / timing.medianMs, best: whole.minMs / timing.minMs, unit: 'x' };
          yield { suite, case: `${label}: speed-up`, ...gained, ratio: gained.value, ratioOf: 'dense' };
        }
      }
    } finally {
      await backend.dispose();
    }
  }
}

/** Two runs, of which the second is measured: the first one reads different neurons. */
function contender(blocks: ProductBlocks, count: number): Contender {
  return {
    async run() {
      const [first, second] = [await blocks.draw(count), await blocks.draw(count)];
      await blocks.put(first);
      await blocks.program.run();
      await blocks.put(second);
      return blocks.program.run();
    },
  };
}
