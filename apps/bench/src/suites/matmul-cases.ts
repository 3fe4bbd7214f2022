/** Common code of gemm and gemv: programs of `matmul` with weight shapes of real models. */
import { ProgramBuilder, type Backend, type Program } from '@winnow/ops';
import { sizeOf, type DType } from '@winnow/tensor';
import { LoadedProgram } from '../harness/loaded-program.js';
import type { BenchOptions } from '../harness/options.js';
import type { Side } from '../harness/suite.js';
import { randomWeights, type RandomWeights } from '../models/random-weights.js';
import type { ProbeName } from '../roofline/machine.js';

export interface MatmulCase {
  readonly dtype: DType;
  readonly numOutputs: number;
  readonly numInputs: number;
  readonly numTokens: number;
  /** Number of matrices, each with its own weights. */
  readonly numMatrices: number;
}

const fullDTypes: readonly DType[] = ['f32', 'f16', 'q8_0', 'q4_0', 'q4_K', 'q5_K', 'q6_K'];
const quickDTypes: readonly DType[] = ['f32', 'q8_0', 'q4_K'];
const quickShapes: readonly (readonly [number, number])[] = [[64, 256]];

export function dtypesOf({ dtypes, quick }: BenchOptions): readonly DType[] {
  return dtypes ?? (quick ? quickDTypes : fullDTypes);
}

export function shapesOf(
  { shapes, quick }: BenchOptions,
  full: readonly (readonly [number, number])[],
): readonly (readonly [number, number])[] {
  return shapes ?? (quick ? quickShapes : full);
}

/** The arithmetic peak for weights of this dtype. */
export function peakOf(dtype: DType, { isNative }: Side): ProbeName {
  const isFloat = dtype === 'f32' || dtype === 'f16' || dtype === 'bf16';
  if (isNative) return isFloat ? 'native f32 fma' : 'native i8 dot';
  return isFloat ? 'f32 relaxed madd' : 'i8 relaxed dot';
}

export function weightBytes({ dtype, numOutputs, numInputs, numMatrices }: MatmulCase): number {
  return numMatrices * sizeOf(dtype, numOutputs * numInputs);
}

export function numOperations({ numOutputs, numInputs, numTokens, numMatrices }: MatmulCase): number {
  return 2 * numMatrices * numTokens * numOutputs * numInputs;
}

/** `numMatrices` products of one input; the last one is the output. */
function matmulProgram({ dtype, numOutputs, numInputs, numTokens, numMatrices }: MatmulCase): Program {
  const b = new ProgramBuilder({});
  const x = b.external('x', 'kv', 'f32', [numTokens, numInputs]);
  let y = x;
  for (let i = 0; i < numMatrices; i++) {
    y = b.activation('matmul', { x, weight: b.external(`weight ${i}`, 'weights', dtype, [numOutputs, numInputs]) });
  }
  b.output('y', y);
  return b.build();
}

const pools = new Map<DType, RandomWeights>();

export function loadMatmul(backend: Backend, matmul: MatmulCase): Promise<LoadedProgram> {
  const { dtype } = matmul;
  const weights = pools.get(dtype) ?? randomWeights(dtype, 0.02, 1);
  pools.set(dtype, weights);
  const inputs = randomWeights('f32', 1, 2);
  const fill = (name: string, target: Uint8Array): void => (name === 'x' ? inputs : weights).fill(target);
  return LoadedProgram.load(backend, matmulProgram(matmul), fill, 'y');
}
