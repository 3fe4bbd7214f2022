/** Inputs and intermediate values of FFNs as program outputs, and their weights as numbers, for calibration. */
import { feedForwardNames, type Weight } from '@winnow/models';
import type { Backend, BufferHandle, FeedForwardLowering, ProgramTensor } from '@winnow/ops';
import { ArgumentError, decoder, numElements, tensorBytes } from '@winnow/tensor';
import type { FeedForwardAccess, FeedForwardLayer, FeedForwardMatrix, FeedForwardTrace } from './feed-forward.js';
import { neuronRows } from './neuron-rows.js';
import type { ReadOutput } from '../memory/step-outputs.js';
import type { TracedStep } from '../memory/step-reports.js';

const outputName = (layer: number, part: 'x' | 'gate' | 'up'): string => `ffn.${layer}.${part}`;

/** A dense FFN lowering that makes what FFNs compute outputs of the program, and fills `layers`. */
export function createFeedForwardTracer(layers: Map<number, FeedForwardLayer>): FeedForwardLowering {
  return (b, node) => {
    const { layer, x, activation, hiddenDim, ffnDim } = node;
    const product = (input: ProgramTensor, weight: ProgramTensor, bias?: ProgramTensor): ProgramTensor =>
      b.activation('matmul', { x: input, weight, bias });
    const gate = node.gate && product(x, node.gate(), node.gateBias?.());
    const up = product(x, node.up(), node.upBias?.());
    const biases = (['gate', 'up', 'down'] as const).filter((matrix) => node[`${matrix}Bias`] !== undefined);
    const bytes = ({ dtype, shape }: ProgramTensor): number => tensorBytes(dtype, shape as readonly number[]);
    const weightBytes = {
      ...(node.gate === undefined ? {} : { gate: bytes(node.gate()) }),
      up: bytes(node.up()),
      down: bytes(node.down()),
    };
    const dtypes = { gate: node.gate?.().dtype, up: node.up().dtype, down: node.down().dtype };
    const rows = neuronRows(dtypes, biases.includes('gate') || biases.includes('up'));
    const isGated = gate !== undefined;
    layers.set(layer, { layer, activation, hiddenDim, ffnDim, isGated, biases, weightBytes, rows });
    b.output(outputName(layer, 'x'), x);
    b.output(outputName(layer, 'up'), up);
    if (gate !== undefined) b.output(outputName(layer, 'gate'), gate);
    const hidden =
      gate === undefined
        ? b.activation('activation', { x: up }, { kind: activation })
        : b.activation('glu', { gate, up }, { kind: activation });
    return product(hidden, node.down(), node.downBias?.());
  };
}

/** Reads the FFN values of the last step, layer by layer. */
export async function readFeedForward(
  layers: readonly FeedForwardLayer[],
  read: ReadOutput,
  { begin, numTokens, reports }: TracedStep,
  onLayer: (trace: FeedForwardTrace) => void | Promise<void>,
): Promise<void> {
  for (const { layer, hiddenDim, ffnDim, isGated } of layers) {
    const rows = async (part: 'x' | 'gate' | 'up', width: number): Promise<Float32Array> => {
      const values = new Float32Array(numTokens * width);
      await read(outputName(layer, part), values);
      return values;
    };
    const [x, up] = [await rows('x', hiddenDim), await rows('up', ffnDim)];
    const gate = isGated ? { gate: await rows('gate', ffnDim) } : {};
    if (reports.take()) await onLayer({ layer, begin, numTokens, x, up, ...gate });
  }
}

export interface FeedForwardParts extends Pick<
  FeedForwardAccess,
  'weightsHash' | 'weightsChecksum' | 'layers' | 'trace'
> {
  readonly weights: ReadonlyMap<string, Weight>;
  readonly backend: Backend;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  /** Runs a task while no step does. */
  readonly exclusive: <T>(task: () => Promise<T>) => Promise<T>;
}

export function createFeedForwardAccess(parts: FeedForwardParts): FeedForwardAccess {
  const { weightsHash, weightsChecksum, layers, trace, weights, backend, buffers, exclusive } = parts;

  /** Rows of a weight from the backend's memory; a vector is one row per value. */
  async function readValues(name: string, begin: number, end: number): Promise<Float32Array> {
    const weight = weights.get(name);
    const buffer = buffers.get(name);
    const [numRows = 0, ...row] = weight?.shape ?? [];
    if (weight === undefined || buffer === undefined || !(begin >= 0 && begin <= end && end <= numRows)) {
      const expected = `rows of a traced layer, at most ${numRows}`;
      throw new ArgumentError({ argument: 'rows', expected, actual: `[${begin}, ${end}) of ${name}` });
    }
    const rowBytes = tensorBytes(weight.dtype, row);
    const bytes = new Uint8Array((end - begin) * rowBytes);
    await exclusive(() => backend.read(buffer, begin * rowBytes, bytes));
    const values = new Float32Array((end - begin) * numElements(row));
    decoder(weight.dtype)(bytes, 0, values, 0, values.length);
    return values;
  }

  const nameOf = (layer: number, matrix: FeedForwardMatrix): string => feedForwardNames(layer)[matrix];
  return {
    weightsHash,
    weightsChecksum,
    layers,
    trace,
    readRows: (layer, matrix, begin, end) => readValues(`${nameOf(layer, matrix)}.weight`, begin, end),
    async readBias(layer, matrix) {
      const name = `${nameOf(layer, matrix)}.bias`;
      const { shape } = weights.get(name) ?? {};
      return shape === undefined ? undefined : readValues(name, 0, shape[0] as number);
    },
  };
}
