/** Runs one feed-forward block as a program, through a lowering. */
import {
  BoundProgram,
  type Backend,
  type LayerFeedForward,
  type FeedForwardLowering,
  type NeuronPass,
  type ProgramBuilder,
  type ProgramTensor,
} from '@winnow/ops';
import { transpose } from '../src/training/matrix-products.js';
import type { FeedForwardWeights, PredictorWeight } from '../src/index.js';

export interface BlockRun {
  readonly y: Float32Array; // [T, E]
  readonly ids: Int32Array;
  /** Names of the external tensors that the program has. */
  readonly weights: readonly string[];
  readonly ops: readonly string[];
}

export interface RunOptions {
  readonly layer?: number;
  readonly hasColumns?: boolean;
  /** Neurons at a time, as tiers do it; needs `boundary` values, so the halves are cut by the test itself. */
  readonly passes?: (b: ProgramBuilder, ids: ProgramTensor, count: ProgramTensor) => Iterable<NeuronPass>;
}

/** The external tensors of a program with their bytes. */
class BlockTensors {
  readonly bytes = new Map<string, Uint8Array>();
  readonly #b: ProgramBuilder;

  constructor(b: ProgramBuilder) {
    this.#b = b;
  }

  add(name: string, values: Float32Array, shape: readonly number[]): ProgramTensor {
    this.bytes.set(name, new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    return this.#b.external(name, 'weights', 'f32', shape);
  }

  /** A tensor for a matrix or bias that blocks may lack. */
  optional<Name extends string>(
    name: Name,
    tensorName: string,
    values: Float32Array | undefined,
    shape: readonly number[],
  ): Partial<Record<Name, () => ProgramTensor>> {
    if (values === undefined) return {};
    return { [name]: () => this.add(tensorName, values, shape) } as Record<Name, () => ProgramTensor>;
  }
}

/** The ops of the dense block. */
function lowerDense(b: ProgramBuilder, request: Omit<LayerFeedForward, 'lowerDense'>): ProgramTensor {
  const { x, activation: kind, gate, up, upBias, down, downBias } = request;
  const raised = b.activation('matmul', { x, weight: up(), bias: upBias?.() });
  const h =
    gate === undefined
      ? b.activation('activation', { x: raised }, { kind })
      : b.activation('gated-activation', { gate: b.activation('matmul', { x, weight: gate() }), up: raised }, { kind });
  return b.activation('matmul', { x: h, weight: down(), bias: downBias?.() });
}

function requestOf(
  b: ProgramBuilder,
  tensors: BlockTensors,
  weights: FeedForwardWeights,
  x: ProgramTensor,
  { layer = 0, hasColumns = true }: RunOptions,
): LayerFeedForward {
  const { hiddenDim, ffnDim, activation, gate, up, upBias, down, downBias } = weights;
  const matrix = [ffnDim, hiddenDim];
  const transposed = [hiddenDim, ffnDim];
  const columnsOf = (values: Float32Array | undefined): Float32Array | undefined =>
    values === undefined || !hasColumns ? undefined : transpose(values, ffnDim, hiddenDim);
  const request = {
    ...{ layer, x, activation, hiddenDim, ffnDim },
    ...tensors.optional('gate', 'gate', gate, matrix),
    ...tensors.optional('gateColumns', 'gate.columns', columnsOf(gate), transposed),
    up: () => tensors.add('up', up, matrix),
    ...tensors.optional('upColumns', 'up.columns', columnsOf(up), transposed),
    ...tensors.optional('upBias', 'up.bias', upBias, [ffnDim]),
    down: () => tensors.add('down', down, transposed),
    downRows: () => tensors.add('down.rows', transpose(down, hiddenDim, ffnDim), matrix),
    ...tensors.optional('downBias', 'down.bias', downBias, [hiddenDim]),
  };
  return { ...request, lowerDense: () => lowerDense(b, request) };
}

/** @param x `[T, E]` */
export async function runBlock(
  backend: Backend,
  weights: FeedForwardWeights,
  lower: FeedForwardLowering,
  tables: ReadonlyMap<string, PredictorWeight>,
  x: Float32Array,
  options: RunOptions = {},
): Promise<BlockRun> {
  const { hiddenDim, ffnDim } = weights;
  const numTokens = x.length / hiddenDim;
  let data = new Map<string, Uint8Array>();
  let hasActive = false;
  const build = (b: ProgramBuilder): void => {
    const tensors = new BlockTensors(b);
    data = tensors.bytes;
    const table = tensors.add('x', x, [numTokens, hiddenDim]);
    const input = b.activation('embedding-lookup', { table, tokens: b.scalar('rows', ['T']) });
    let active: ProgramTensor | undefined;
    const passes = (ids: ProgramTensor, count: ProgramTensor): Iterable<NeuronPass> => {
      active = ids;
      b.output('count', count);
      return options.passes?.(b, ids, count) ?? [{ ids, rows: ids, count }];
    };
    b.output('y', lower(b, { ...requestOf(b, tensors, weights, input, options), passes }));
    hasActive = active !== undefined;
    if (active !== undefined) b.output('ids', active);
  };
  await using program = await BoundProgram.prepare(
    { backend, symbols: { T: numTokens }, onUnsupported: 'error' },
    build,
  );
  const names = [...program.buffers.keys()];
  for (const name of names) await program.write(name, data.get(name) ?? (tables.get(name) as PredictorWeight).bytes);
  program.scalars.bind('T', numTokens);
  program.scalars.slot('rows').set(Array.from({ length: numTokens }, (_, i) => i));
  await program.run();
  const y = new Float32Array(numTokens * hiddenDim);
  await program.read('y', y);
  const [ids, count] = [new Int32Array(ffnDim), new Int32Array(1)];
  if (hasActive) {
    await program.read('ids', ids);
    await program.read('count', count);
  }
  const ops = program.program.records.map(({ op }) => op);
  return { y, ids: ids.slice(0, count[0]), weights: names.filter((name) => name !== 'x'), ops };
}
