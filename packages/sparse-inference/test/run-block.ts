/** Runs one FFN block as a program, through a lowering. */
import {
  BoundProgram,
  type Backend,
  type LayerFeedForward,
  type FeedForwardLowering,
  type NeuronPass,
  type ProgramBuilder,
  type ProgramTensor,
} from '@winnow/ops';
import { blockRequest } from '../src/blocks/block-request.js';
import { inputRows, runRows } from '../src/blocks/input-rows.js';
import type { FeedForwardWeights, PredictorWeight } from '../src/index.js';

export interface BlockRun {
  readonly y: Float32Array; // [T, E]
  readonly ids: Int32Array;
  /** Names of the program's external tensors. */
  readonly weights: readonly string[];
  readonly ops: readonly string[];
}

export interface RunOptions {
  readonly layer?: number;
  readonly hasColumns?: boolean;
  /** Splits the active neurons into passes, as tiers do; default: one pass. */
  readonly passes?: (b: ProgramBuilder, ids: ProgramTensor, count: ProgramTensor) => Iterable<NeuronPass>;
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
  const contents = new Map([...tables].map(([name, { bytes }]) => [name, bytes]));
  let hasActive = false;
  const build = (b: ProgramBuilder): void => {
    const { gateColumns, upColumns, ...request } = blockRequest(b, weights, inputRows(b, hiddenDim), contents);
    const columns = options.hasColumns === false ? {} : { gateColumns, upColumns };
    let active: ProgramTensor | undefined;
    const passes = (ids: ProgramTensor, count: ProgramTensor): Iterable<NeuronPass> => {
      active = ids;
      b.output('count', count);
      return options.passes?.(b, ids, count) ?? [{ ids, rows: ids, count }];
    };
    b.output('y', lower(b, { ...request, ...columns, layer: options.layer ?? 0, passes } as LayerFeedForward));
    hasActive = active !== undefined;
    if (active !== undefined) b.output('ids', active);
  };
  await using program = await BoundProgram.prepare(
    { backend, symbols: { T: numTokens }, onUnsupported: 'error' },
    build,
  );
  const names = [...program.buffers.keys()].filter((name) => name !== 'x');
  for (const name of names) await program.write(name, contents.get(name) as Uint8Array);
  const y = new Float32Array(numTokens * hiddenDim);
  await runRows(program, x, hiddenDim, () => program.read('y', y));
  const [ids, count] = [new Int32Array(ffnDim), new Int32Array(1)];
  if (hasActive) {
    await program.read('ids', ids);
    await program.read('count', count);
  }
  const ops = program.program.records.map(({ op }) => op);
  return { y, ids: ids.slice(0, count[0]), weights: names, ops };
}
