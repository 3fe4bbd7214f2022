/** Inputs and products of FFNs as outputs of a program, and their weights as numbers, for calibrations. */
import { feedForwardNames, type EmbedderDescription, type ModelDescription, type Weight } from '@winnow/models';
import type { Backend, BufferHandle, FeedForwardLowering, ProgramTensor } from '@winnow/ops';
import { ArgumentError, decoder, numElements, tensorBytes } from '@winnow/tensor';
import type { FeedForwardAccess, FeedForwardLayer, FeedForwardMatrix, FeedForwardTrace } from './feed-forward.js';
import { neuronRows } from './neuron-rows.js';
import { withFeedForward } from './with-feed-forward.js';
import type { ReadOutput } from '../memory/step-outputs.js';
import type { TracedStep } from '../memory/step-reports.js';

const outputName = (layer: number, part: 'x' | 'gate' | 'up'): string => `ffn.${layer}.${part}`;

/**
 * A writer for one program that computes with all neurons and makes what each layer sees an output.
 * @param onLayer hears of each layer
 */
function createFeedForwardTracer(onLayer: (layer: FeedForwardLayer) => void): FeedForwardLowering {
  return (b, site) => {
    const { layer, x, activation, hiddenDim, ffnDim } = site;
    const product = (input: ProgramTensor, weight: ProgramTensor, bias?: ProgramTensor): ProgramTensor =>
      b.activation('matmul', { x: input, weight, bias });
    const gate = site.gate && product(x, site.gate(), site.gateBias?.());
    const up = product(x, site.up(), site.upBias?.());
    const biases = (['gate', 'up', 'down'] as const).filter((matrix) => site[`${matrix}Bias`] !== undefined);
    const bytes = ({ dtype, shape }: ProgramTensor): number => tensorBytes(dtype, shape as readonly number[]);
    const weightBytes = {
      ...(site.gate === undefined ? {} : { gate: bytes(site.gate()) }),
      up: bytes(site.up()),
      down: bytes(site.down()),
    };
    const dtypes = { gate: site.gate?.().dtype, up: site.up().dtype, down: site.down().dtype };
    const rows = neuronRows(dtypes, biases.includes('gate') || biases.includes('up'));
    onLayer({ layer, activation, hiddenDim, ffnDim, isGated: gate !== undefined, biases, weightBytes, rows });
    b.output(outputName(layer, 'x'), x);
    b.output(outputName(layer, 'up'), up);
    if (gate !== undefined) b.output(outputName(layer, 'gate'), gate);
    const hidden =
      gate === undefined
        ? b.activation('activation', { x: up }, { kind: activation })
        : b.activation('glu', { gate, up }, { kind: activation });
    return product(hidden, site.down(), site.downBias?.());
  };
}

/** A description whose programs make visible what their FFNs compute; building one fills `layers`. */
export function withFeedForwardTrace<D extends EmbedderDescription | ModelDescription>(
  description: D,
  layers: Map<number, FeedForwardLayer>,
): D {
  const onLayer = (layer: FeedForwardLayer): void => void layers.set(layer.layer, layer);
  return withFeedForward(description, () => ({ feedForward: createFeedForwardTracer(onLayer) }));
}

/** Reads what the step that just ran computed, layer by layer. */
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
