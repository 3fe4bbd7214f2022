/** Runs one feed-forward block as a program, through a writer. */
import {
  createScalarBlock,
  ProgramBuilder,
  type Backend,
  type LayerFeedForward,
  type FeedForwardLowering,
  type NeuronPass,
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

interface RunOptions {
  readonly layer?: number;
  readonly hasColumns?: boolean;
  /** Neurons at a time, as tiers do it; needs `boundary` values, so the halves are cut by the test itself. */
  readonly passes?: (b: ProgramBuilder, ids: ProgramTensor, count: ProgramTensor) => Iterable<NeuronPass>;
}

/** @param x `[T, E]` */
export async function runBlock(
  backend: Backend,
  weights: FeedForwardWeights,
  write: FeedForwardLowering,
  tables: ReadonlyMap<string, PredictorWeight>,
  x: Float32Array,
  { layer = 0, hasColumns = true, passes }: RunOptions = {},
): Promise<BlockRun> {
  const { hiddenDim, ffnDim, activation, gate, up, upBias, down, downBias } = weights;
  const numTokens = x.length / hiddenDim;
  const b = new ProgramBuilder({ T: numTokens });
  const data = new Map<string, Uint8Array>();
  const external = (name: string, values: Float32Array, shape: readonly number[]): ProgramTensor => {
    data.set(name, new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    return b.external(name, 'weights', 'f32', shape);
  };
  for (const [name, { bytes }] of tables) data.set(name, bytes);
  const input = b.activation('embedding-lookup', {
    table: external('x', x, [numTokens, hiddenDim]),
    tokens: b.scalar('rows', ['T']),
  });
  const matrix = [ffnDim, hiddenDim];
  let active: ProgramTensor | undefined;
  const columns = (name: string, values: Float32Array) => () =>
    external(`${name}.columns`, transpose(values, ffnDim, hiddenDim), [hiddenDim, ffnDim]);
  const request: LayerFeedForward = {
    layer,
    x: input,
    activation,
    hiddenDim,
    ffnDim,
    ...(gate === undefined ? {} : { gate: () => external('gate', gate, matrix) }),
    ...(gate === undefined || !hasColumns ? {} : { gateColumns: columns('gate', gate) }),
    up: () => external('up', up, matrix),
    ...(hasColumns ? { upColumns: columns('up', up) } : {}),
    ...(upBias === undefined ? {} : { upBias: () => external('up.bias', upBias, [ffnDim]) }),
    down: () => external('down', down, [hiddenDim, ffnDim]),
    downRows: () => external('down.rows', transpose(down, hiddenDim, ffnDim), matrix),
    ...(downBias === undefined ? {} : { downBias: () => external('down.bias', downBias, [hiddenDim]) }),
    lowerDense() {
      const bias = (name: string, values: Float32Array | undefined): { bias?: ProgramTensor } =>
        values === undefined ? {} : { bias: external(name, values, [values.length]) };
      const raised = b.activation('matmul', { x: input, weight: request.up(), ...bias('up.bias', upBias) });
      const h =
        request.gate === undefined
          ? b.activation('activation', { x: raised }, { kind: activation })
          : b.activation(
              'gated-activation',
              { gate: b.activation('matmul', { x: input, weight: request.gate() }), up: raised },
              { kind: activation },
            );
      return b.activation('matmul', { x: h, weight: request.down(), ...bias('down.bias', downBias) });
    },
    passes(ids, count) {
      active = ids;
      b.output('count', count);
      return passes?.(b, ids, count) ?? [{ ids, rows: ids, count }];
    },
  };
  b.output('y', write(b, request));
  if (active !== undefined) b.output('ids', active);
  const program = b.build();
  const buffers = new Map(
    program.buffers
      .filter(({ usage }) => usage === 'weights')
      .map(({ name, usage, sizeBytes }) => [name, backend.allocate({ sizeBytes, usage, label: name })] as const),
  );
  for (const [name, handle] of buffers) await backend.write(handle, 0, data.get(name) as Uint8Array);
  const executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
  const step = createScalarBlock(program.scalars, program.symbols);
  step.bind('T', numTokens);
  step.slot('rows').set(Int32Array.from({ length: numTokens }, (_, i) => i));
  await executable.run(step.words);
  const y = new Float32Array(numTokens * hiddenDim);
  await executable.read('y', y);
  const [ids, count] = [new Int32Array(ffnDim), new Int32Array(1)];
  if (active !== undefined) {
    await executable.read('ids', ids);
    await executable.read('count', count);
  }
  await executable.dispose();
  for (const handle of buffers.values()) backend.free(handle);
  const ops = program.records.map(({ op }) => op);
  return { y, ids: ids.slice(0, count[0]), weights: [...buffers.keys()].filter((name) => name !== 'x'), ops };
}
