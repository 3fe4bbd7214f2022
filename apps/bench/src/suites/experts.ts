import { ProgramBuilder, type Backend, type Program } from '@winnow/ops';
import { createRng, sizeOf, type DType } from '@winnow/tensor';
import { gigaPerSecond, type Figure } from '../harness/figure.js';
import { LoadedProgram } from '../harness/loaded-program.js';
import { measure, type Contender } from '../harness/measure.js';
import { measureOptions, readOf, sidesOf, threadsText, type Suite, type SuiteContext } from '../harness/suite.js';
import { randomWeights } from '../models/random-weights.js';
import type { Probe } from '../roofline/machine.js';
import { peakOf } from './matmul-cases.js';

const suite = 'experts';

interface ExpertCase {
  readonly dtype: DType;
  readonly numTokens: number;
  readonly numExperts: number;
  /** Experts per token. */
  readonly numChoices: number;
  readonly numInputs: number;
  readonly numOutputs: number;
  /** GEMMs per run, each with its own weights. */
  readonly numMatrices: number;
}

/** `gate` of a layer of Qwen 3 30B-A3B, several times, so that weights come from memory. */
const full = { numExperts: 128, numChoices: 8, numInputs: 2048, numOutputs: 768, numMatrices: 2 } as const;
const quick = { numExperts: 8, numChoices: 2, numInputs: 256, numOutputs: 64, numMatrices: 2 } as const;

/** Mixtures of experts: one token reads its experts, many tokens compute with them. */
export const experts: Suite = {
  name: suite,
  summary: 'GEMMs of experts: share of the memory read bandwidth for one token, of the arithmetic peak for many',
  async *run(context) {
    const { options } = context;
    const shape = options.quick ? quick : full;
    for (const dtype of options.dtypes ?? (options.quick ? ['q8_0'] : ['q8_0', 'q4_0', 'q4_K'])) {
      for (const numTokens of options.tokens ?? (options.quick ? [1, 16] : [1, 16, 256])) {
        yield* measureCase(context, { ...shape, dtype, numTokens });
      }
    }
  },
};

async function* measureCase(context: SuiteContext, expertCase: ExpertCase): AsyncIterable<Figure> {
  const { options, machine } = context;
  const contenders: Record<string, Contender> = {};
  const probes: Record<string, Probe> = {};
  const backends: Backend[] = [];
  const { dtype, numTokens } = expertCase;
  for (const side of sidesOf(context)) {
    for (const threads of options.threads) {
      const backend = await context.createBackend(threads, 'workers', side.isNative);
      backends.push(backend);
      contenders[`work ${threads}${side.label}`] = await loadExperts(backend, expertCase);
      const probe = await machine.probe(numTokens === 1 ? readOf(side) : peakOf(dtype, side), threads);
      probes[`peak ${threads}${side.label}`] = probe;
      contenders[`peak ${threads}${side.label}`] = probe;
    }
  }
  const timings = await measure(contenders, measureOptions(options, 7)).finally(async () => {
    for (const backend of backends) await backend.dispose();
  });
  const amount = numTokens === 1 ? selectedBytes(expertCase) : numOperations(expertCase);
  const unit = numTokens === 1 ? 'GB/s' : 'GOP/s';
  for (const side of sidesOf(context)) {
    for (const threads of options.threads) {
      const key = `${threads}${side.label}`;
      const rate = gigaPerSecond(amount, timings[`work ${key}`]!);
      const peak = gigaPerSecond(probes[`peak ${key}`]!.amount, timings[`peak ${key}`]!).value;
      const name = `${nameOf(expertCase)}, ${threadsText(threads)}${side.label}`;
      const ratioOf = `${numTokens === 1 ? readOf(side) : peakOf(dtype, side)}, ${threadsText(threads)}`;
      yield { suite, case: name, ...rate, unit, ratio: rate.value / peak, ratioOf };
      if (!side.isNative) continue;
      const ratio = timings[`work ${threads}`]!.medianMs / timings[`work ${key}`]!.medianMs;
      yield { suite, case: `${name}: gain`, ...rate, unit, ratio, ratioOf: `WebAssembly, ${threadsText(threads)}` };
    }
  }
}

function nameOf({ dtype, numTokens, numChoices, numExperts, numOutputs, numInputs }: ExpertCase): string {
  return `${dtype} ${numChoices} of ${numExperts} of ${numOutputs}x${numInputs} T=${numTokens}`;
}

function numOperations({ numTokens, numChoices, numInputs, numOutputs, numMatrices }: ExpertCase): number {
  return 2 * numMatrices * numTokens * numChoices * numInputs * numOutputs;
}

/** Bytes of the weights that one token reads. */
function selectedBytes({ dtype, numChoices, numInputs, numOutputs, numMatrices }: ExpertCase): number {
  return numMatrices * numChoices * sizeOf(dtype, numOutputs * numInputs);
}

function expertProgram(expertCase: ExpertCase): Program {
  const { dtype, numTokens, numExperts, numChoices, numInputs, numOutputs, numMatrices } = expertCase;
  const b = new ProgramBuilder({});
  const x = b.external('x', 'kv', 'f32', [numTokens, 1, numInputs]);
  let y = x;
  for (let i = 0; i < numMatrices; i++) {
    const ids = b.external(`ids ${i}`, 'kv', 'i32', [numTokens, numChoices]);
    const weight = b.external(`weight ${i}`, 'weights', dtype, [numExperts, numOutputs, numInputs]);
    y = b.activation('expert-matmul', { x, ids, weight });
  }
  b.output('y', y);
  return b.build();
}

/** Tokens with random experts, a different set for each token. */
function loadExperts(backend: Backend, expertCase: ExpertCase): Promise<LoadedProgram> {
  const [weights, inputs] = [randomWeights(expertCase.dtype, 0.02, 1), randomWeights('f32', 1, 2)];
  const rng = createRng(3);
  const fill = (name: string, target: Uint8Array): void => {
    if (name.startsWith('ids')) drawIds(expertCase, () => rng.nextFloat(), target);
    else (name === 'x' ? inputs : weights).fill(target);
  };
  return LoadedProgram.load(backend, expertProgram(expertCase), fill, 'y');
}

function drawIds({ numTokens, numExperts, numChoices }: ExpertCase, next: () => number, target: Uint8Array): void {
  const ids = new Int32Array(target.buffer, target.byteOffset, numTokens * numChoices);
  const all = Array.from({ length: numExperts }, (_, expert) => expert);
  for (let token = 0; token < numTokens; token++) {
    for (let choice = 0; choice < numChoices; choice++) {
      const at = choice + Math.floor(next() * (numExperts - choice));
      [all[choice], all[at]] = [all[at] as number, all[choice] as number];
      ids[token * numChoices + choice] = all[choice] as number;
    }
  }
}
