/** SwiGLU blocks that guess gate and up first: the time of guesses and chosen neurons together, against dense blocks. */
import { ProgramBuilder, type Program, type ProgramTensor } from '@winnow/ops';
import { milliseconds, type Figure } from '../harness/figure.js';
import { loadProgram } from '../harness/loaded-program.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { randomWeights } from '../models/random-weights.js';
import { loadDense, loadSparse, type FfnCase } from './ffn-programs.js';

const suite = 'ffn-product';
const rank = 256;
/** What the targets for SwiGLU leave: 40 and 50 % skipped. */
const ratios = [0.6, 0.5];

/** Neurons are chosen by lot, so guesses are computed and not used: `ffn` has the time of choosing in its sparse blocks. */
export const ffnProduct: Suite = {
  name: suite,
  summary: 'SwiGLU blocks with 60 and 50 % of the neurons, guesses of gate and up of rank 256 included',
  run: measureProducts,
};

/** `act(Qg (Pg x)) * (Qu (Pu x))` for all layers. */
function guessProgram({ hiddenDim, ffnDim, numLayers, numTokens }: FfnCase): Program {
  const b = new ProgramBuilder({});
  const x = b.external('x', 'kv', 'f32', [numTokens, hiddenDim]);
  let y: ProgramTensor = x;
  for (let layer = 0; layer < numLayers; layer++) {
    const guess = (part: string): ProgramTensor => {
      const p = b.external(`${part}.p ${layer}`, 'weights', 'q8_0', [rank, hiddenDim]);
      const q = b.external(`${part}.q ${layer}`, 'weights', 'q8_0', [ffnDim, rank]);
      return b.activation('matmul', { x: b.activation('matmul', { x, weight: p }), weight: q });
    };
    y = b.activation('gated-activation', { gate: guess('gate'), up: guess('up') }, { kind: 'silu' });
  }
  b.output('y', y);
  return b.build();
}

async function* measureProducts(context: SuiteContext): AsyncIterable<Figure> {
  const { options } = context;
  const [hiddenDim, ffnDim, numLayers] = options.quick ? [256, 512, 2] : [4096, 14336, 2];
  for (const threads of options.threads) {
    const shape: FfnCase = { dtype: 'q8_0', hiddenDim, ffnDim, numLayers, numTokens: 1 };
    const backend = await context.createBackend(threads, 'workers');
    try {
      const [dense, sparse] = [await loadDense(backend, shape), await loadSparse(backend, shape)];
      const [inputs, weights] = [randomWeights('f32', 1, 2), randomWeights('q8_0', 0.02, 1)];
      const guesses = await loadProgram(
        backend,
        guessProgram(shape),
        (name, target) => (name === 'x' ? inputs : weights).fill(target),
        'y',
      );
      // the first run after others wakes threads up, as in `ffn`
      const contenders: Record<string, Contender> = { dense: { run: async () => (await dense.run(), dense.run()) } };
      for (const ratio of ratios) {
        contenders[`sparse ${ratio}`] = {
          async run() {
            await sparse.draw(Math.round(ratio * ffnDim));
            await sparse.run();
            await sparse.draw(Math.round(ratio * ffnDim));
            return (await guesses.run()) + (await sparse.run());
          },
        };
      }
      const timings = await measure(contenders, measureOptions(options, 9));
      const whole = timings['dense']!;
      const name = `q8_0 ${hiddenDim}x${ffnDim}, ${threadsText(threads)}`;
      yield {
        suite,
        case: `${name}: dense block`,
        ...milliseconds(whole, numLayers),
        unit: 'ms',
        ratio: 1,
        ratioOf: 'itself',
      };
      for (const ratio of ratios) {
        const timing = timings[`sparse ${ratio}`]!;
        const label = `${name}: ${Math.round(100 * ratio)} % active, guesses of rank ${rank}`;
        const ratioToDense = { ratio: timing.medianMs / whole.medianMs, ratioOf: 'dense' };
        yield { suite, case: label, ...milliseconds(timing, numLayers), unit: 'ms', ...ratioToDense };
        const gained = { value: whole.medianMs / timing.medianMs, best: whole.minMs / timing.minMs, unit: 'x' };
        yield { suite, case: `${label}: speed-up`, ...gained, ratio: gained.value, ratioOf: 'dense' };
      }
    } finally {
      await backend.dispose();
    }
  }
}
