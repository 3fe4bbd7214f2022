/** State-space layers as in Mamba-2 (arXiv:2405.21060): their sizes and tensors, and the records of a layer. */
import type { ProgramTensor } from '@winnow/ops';
import type { Fields } from '../file/fields.js';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { tensorNames } from '../program/tensors.js';
import { linear, linearRows } from './decoder-blocks.js';

/** Sizes of the state-space layers of a model. */
export interface StateSpaceConfig {
  readonly numHeads: number;
  readonly headDim: number;
  /** Heads of a group read the state by the same vectors. */
  readonly numGroups: number;
  readonly stateDim: number;
  readonly numTaps: number;
}

/** @throws {FormatError} for sizes that do not fit together */
export function checkedStateSpace(fields: Fields, sizes: StateSpaceConfig, innerDim: number): StateSpaceConfig {
  const { numHeads, headDim, numGroups, numTaps } = sizes;
  if (numHeads * headDim !== innerDim) {
    throw fields.refusal('heads of state-space layers', `a divisor of ${innerDim}, their inner size`, numHeads);
  }
  if (numHeads % numGroups !== 0) {
    throw fields.refusal('groups of state-space layers', `a divisor of ${numHeads}`, numGroups);
  }
  if (numTaps < 2) throw fields.refusal('kernel size of the convolution', 'at least 2', numTaps);
  return sizes;
}

function innerDimOf({ numHeads, headDim }: StateSpaceConfig): number {
  return numHeads * headDim;
}

/** Channels of the convolution: x, b and c. */
function channelsOf(sizes: StateSpaceConfig): number {
  return innerDimOf(sizes) + 2 * sizes.numGroups * sizes.stateDim;
}

/** @param hub the layer's module in Hugging Face checkpoints */
export function* stateSpaceTensors(
  file: ModelFile,
  hiddenDim: number,
  sizes: StateSpaceConfig,
  layer: number,
  hub: string,
): Generator<WeightRequest> {
  const names = tensorNames(file);
  const { isHub } = names;
  const { numHeads, numTaps } = sizes;
  const own = `blk.${layer}`;
  const [innerDim, numChannels] = [innerDimOf(sizes), channelsOf(sizes)];
  yield* names.matrix([`${own}.ssm_in`, `${hub}.in_proj`], [innerDim + numChannels + numHeads, hiddenDim], 'none');
  yield* names.matrix([`${own}.ssm_out`, `${hub}.out_proj`], [hiddenDim, innerDim], 'none');
  const taps = `${own}.ssm_conv1d.weight`;
  yield {
    name: taps,
    storedName: isHub ? `${hub}.conv1d.weight` : taps,
    shape: isHub ? [numChannels, 1, numTaps] : [numChannels, numTaps],
    isFloat: true,
  };
  yield { ...names.bias([`${own}.ssm_conv1d`, `${hub}.conv1d`], numChannels), optional: true };
  const [bias, decay, skip] = [`${own}.ssm_dt.bias`, `${own}.ssm_a`, `${own}.ssm_d`];
  yield { name: bias, storedName: isHub ? `${hub}.dt_bias` : bias, shape: [numHeads] };
  // GGUF files have one column per head, as Mamba has several
  const perHead = isHub ? [numHeads] : [numHeads, 1];
  const asLogarithm = isHub ? ({ storedAs: 'log-of-negative' } as const) : {};
  yield { name: decay, storedName: isHub ? `${hub}.A_log` : decay, shape: perHead, isFloat: true, ...asLogarithm };
  yield { name: skip, storedName: isHub ? `${hub}.D` : skip, shape: perHead, isFloat: true };
  const norm = `${own}.ssm_norm.weight`;
  yield {
    name: norm,
    storedName: isHub ? `${hub}.norm.weight` : norm,
    shape: isHub ? [innerDim] : [1, innerDim],
    isFloat: true,
  };
}

/**
 * `out(rms(scan(silu(conv(x, b, c)), dt) * silu(z)))` of normalized inputs, with z, x, b, c and dt the rows of one projection.
 */
export function stateSpaceMixer(
  step: DecoderStep,
  layer: number,
  input: ProgramTensor,
  sizes: StateSpaceConfig,
): ProgramTensor {
  const { b, weight } = step;
  const { numHeads, headDim, numGroups, stateDim, numTaps } = sizes;
  const own = `blk.${layer}`;
  const [innerDim, numChannels] = [innerDimOf(sizes), channelsOf(sizes)];
  const projected = (begin: number, length: number): ProgramTensor =>
    linearRows(step, `${own}.ssm_in`, input, begin, begin + length);
  const z = projected(0, innerDim);
  const convolved = b.append(
    'short-conv',
    {
      x: projected(innerDim, numChannels),
      weight: b.reshape(weight(`${own}.ssm_conv1d.weight`), [numChannels, numTaps]),
      bias: step.optionalWeight(`${own}.ssm_conv1d.bias`),
      ...step.stateInputs(),
    },
    { activation: 'silu' },
    { state: step.state(layer, 'conv', [numTaps - 1, numChannels]) },
  );
  const part = (begin: number, count: number, length: number): ProgramTensor => {
    const columns = { begin, length: count * length };
    const x = b.activation('slice-columns', { x: convolved['y'] as ProgramTensor }, columns);
    return b.reshape(x, ['T', count, length]);
  };
  const groupDim = numGroups * stateDim;
  const scanned = b.append(
    'selective-scan',
    {
      x: part(0, numHeads, headDim),
      b: part(innerDim, numGroups, stateDim),
      c: part(innerDim + groupDim, numGroups, stateDim),
      dt: projected(innerDim + numChannels, numHeads),
      dtBias: weight(`${own}.ssm_dt.bias`),
      decay: b.reshape(weight(`${own}.ssm_a`), [numHeads, 1]),
      skip: b.reshape(weight(`${own}.ssm_d`), [numHeads]),
      ...step.stateInputs(),
    },
    {},
    { state: step.state(layer, 'memory', [numHeads, headDim, stateDim]) },
  );
  const y = b.reshape(scanned['y'] as ProgramTensor, ['T', innerDim]);
  const gated = b.activation('glu', { gate: z, up: y }, { kind: 'silu' });
  const scale = b.reshape(weight(`${own}.ssm_norm.weight`), [innerDim]);
  const normed = b.activation('rms-norm', { x: gated, weight: scale }, { eps: step.config.normEps });
  return linear(step, `${own}.ssm_out`, normed);
}
