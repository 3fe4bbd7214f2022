/** The gain of fusing records of a layer: grouped matmuls with the same input, and an upper bound of what fused kernels could gain. */
import {
  groupMatmuls,
  ProgramBuilder,
  rewriteProgram,
  type Backend,
  type Program,
  type ProgramTensor,
} from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import { milliseconds, type Figure } from '../harness/figure.js';
import { LoadedProgram, type FillBuffer } from '../harness/loaded-program.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { modelShape, type ModelShape } from '../models/model-shapes.js';
import { randomWeights } from '../models/random-weights.js';
import { greedy, loadContenders, type LoadedContenders } from './end-to-end.js';

const suite = 'fusions';
const dtype: DType = 'q8_0';

export const fusions: Suite = {
  name: suite,
  summary:
    'fused records of a layer and of whole models: query, key and value; and layers without norms and gates, ' +
    'which fused kernels cannot beat',
  async *run(context) {
    const { models, quick, threads } = context.options;
    for (const name of models ?? (quick ? ['winnow-tiny'] : ['smollm2-135m', 'tinyllama-1.1b'])) {
      for (const numThreads of threads) {
        for (const numTokens of quick ? [1, 4] : [1, 16]) {
          yield* measureLayer(context, modelShape(name), numThreads, numTokens);
        }
        yield* measureModel(context, name, numThreads);
      }
    }
  },
};

/** A layer in several forms. */
interface LayerForms {
  readonly 'as written': Program;
  readonly 'query, key and value together': Program;
  readonly 'without norms': Program;
  readonly 'without the activation': Program;
}

async function* measureLayer(
  { options, createBackend }: SuiteContext,
  shape: ModelShape,
  numThreads: number,
  numTokens: number,
): AsyncIterable<Figure> {
  const backend = await createBackend(numThreads, 'default');
  try {
    const forms = formsOf(shape, numTokens);
    const loaded: Record<string, LoadedProgram> = {};
    const first = await LoadedProgram.load(backend, forms['as written'], fillWeights(), 'y');
    for (const [name, program] of Object.entries(forms)) {
      loaded[name] = await LoadedProgram.load(backend, program, fillWeights(), 'y', first.buffers);
      loaded[name].scalars.bind('T', numTokens);
    }
    const timings = await measure(loaded, measureOptions(options, 201));
    const written = milliseconds(timings['as written']!);
    for (const name of Object.keys(forms).slice(1)) {
      const rate = milliseconds(timings[name]!);
      const caseName = `${shape.name} ${dtype} T=${numTokens}, ${threadsText(numThreads)}: ${name}`;
      yield { suite, case: caseName, ...rate, unit: 'ms', ratio: rate.best / written.best, ratioOf: 'as written' };
    }
  } finally {
    await backend.dispose();
  }
}

const promptLength = 128;

/** Prompts and generation of a whole model, whose backend rewrites every program or none. */
async function* measureModel(context: SuiteContext, name: string, numThreads: number): AsyncIterable<Figure> {
  const numDecoded = context.options.quick ? 4 : 16;
  const sizes = [promptLength + numDecoded, promptLength + 1];
  const options = { ...context.options, threads: [numThreads] };
  const rewritten: SuiteContext['createBackend'] = async (...chosen) =>
    withGroupedMatmuls(await context.createBackend(...chosen));
  const open: LoadedContenders[] = [];
  try {
    for (const createBackend of [context.createBackend, rewritten]) {
      open.push(await loadContenders({ ...context, options, createBackend }, { name, dtype }, sizes));
    }
    const [asWritten, grouped] = open.map((loaded) => contendersOf(loaded, numDecoded));
    for (const phase of ['prefill', 'decode'] as const) {
      const contenders = { written: asWritten![phase], grouped: grouped![phase] };
      const timings = await measure(contenders, measureOptions(options, 41));
      const rate = milliseconds(timings['grouped']!);
      const ratio = rate.best / milliseconds(timings['written']!).best;
      const caseName = `${open[0]!.name} ${phase} @${promptLength}: query, key and value together`;
      yield { suite, case: caseName, ...rate, unit: 'ms', ratio, ratioOf: 'as written' };
    }
  } finally {
    for (const loaded of open.toReversed()) await loaded.dispose();
  }
}

function withGroupedMatmuls(backend: Backend): Backend {
  return {
    ...backend,
    prepare: (program, options) => backend.prepare(rewriteProgram(program, [groupMatmuls]), options),
  };
}

/** Generation after a prompt that is cached, and prompts that differ in their first token, so that nothing of them is cached. */
function contendersOf(
  { sessions, tokens }: LoadedContenders,
  numDecoded: number,
): Readonly<Record<'prefill' | 'decode', Contender>> {
  const [decoding, prefilling] = sessions;
  const prompt = tokens(promptLength);
  let numPrompts = 0;
  const nextPrompt = (): number[] => [prompt[numPrompts++ % promptLength]!, ...prompt.slice(1)];
  return {
    decode: { run: async () => (await greedy(decoding!, prompt, numDecoded)).timeMs },
    prefill: {
      async run() {
        prefilling!.reset();
        return (await greedy(prefilling!, nextPrompt(), 1)).timeMs;
      },
    },
  };
}

function formsOf(shape: ModelShape, numTokens: number): LayerForms {
  const written = layerProgram(shape, numTokens, { hasNorms: true, isGated: true });
  return {
    'as written': written,
    'query, key and value together': rewriteProgram(written, [groupMatmuls]),
    'without norms': layerProgram(shape, numTokens, { hasNorms: false, isGated: true }),
    'without the activation': layerProgram(shape, numTokens, { hasNorms: true, isGated: false }),
  };
}

/** A layer without attention itself: projections with rotation, and the FFN. */
function layerProgram(
  { hiddenDim, numHeads, numKvHeads, headDim, ffnDim }: ModelShape,
  numTokens: number,
  { hasNorms, isGated }: { readonly hasNorms: boolean; readonly isGated: boolean },
): Program {
  const b = new ProgramBuilder({ T: numTokens });
  const positions = b.scalar('positions', ['T']);
  const table = b.external('table', 'weights', 'f32', [1, hiddenDim]);
  const frequencies = b.external('frequencies', 'weights', 'f32', [headDim / 2]);
  const scales = b.external('scales', 'weights', 'f32', [hiddenDim]);
  const norm = (x: ProgramTensor): ProgramTensor =>
    hasNorms ? b.activation('rms-norm', { x, weight: scales }, { eps: 1e-5 }) : x;
  const linear = (name: string, x: ProgramTensor, numInputs: number, numOutputs: number): ProgramTensor =>
    b.activation('matmul', { x, weight: b.external(name, 'weights', dtype, [numOutputs, numInputs]) });
  const heads = (name: string, x: ProgramTensor, count: number): ProgramTensor => {
    const rows = b.reshape(linear(name, x, hiddenDim, count * headDim), ['T', count, headDim]);
    return b.activation('rope', { x: rows, positions, frequencies }, { layout: 'halves', amplitude: 1 });
  };
  const x = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) }, { scale: 1 });
  const normed = norm(x);
  const query = heads('query', normed, numHeads);
  b.output('key', heads('key', normed, numKvHeads));
  b.output('value', linear('value', normed, hiddenDim, numKvHeads * headDim));
  const attended = linear('output', b.reshape(query, ['T', numHeads * headDim]), numHeads * headDim, hiddenDim);
  const hidden = b.activation('add', { a: x, b: attended });
  const inputs = norm(hidden);
  const gate = linear('gate', inputs, hiddenDim, ffnDim);
  const up = linear('up', inputs, hiddenDim, ffnDim);
  const active = isGated ? b.activation('glu', { gate, up }, { kind: 'silu' }) : gate;
  b.output('up', up);
  b.output('y', b.activation('add', { a: hidden, b: linear('down', active, ffnDim, hiddenDim) }));
  return b.build();
}

function fillWeights(): FillBuffer {
  const [floats, blocks] = [randomWeights('f32', 0.05, 1), randomWeights(dtype, 0.05, 2)];
  return (name, target) => (['table', 'scales', 'frequencies'].includes(name) ? floats : blocks).fill(target);
}
