/** State-space layers as in Mamba-2 (arXiv:2405.21060): their sizes and tensors, and the op records of a layer. */
import type { ProgramTensor } from '@winnow/ops';
import type { Fields } from '../file/fields.js';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { tensorNames, type Names } from '../program/tensors.js';
import { refuseSettings } from '../settings/config-checks.js';
import { linear, linearRows, rowPerToken, scaled } from './decoder-blocks.js';

/** Factors of the parts of a layer's input projection: the gate z, x, b, c and dt. */
export interface StateSpaceFactors {
  readonly z: number;
  readonly x: number;
  readonly b: number;
  readonly c: number;
  readonly dt: number;
}

/** Sizes of the state-space layers of a model. */
export interface StateSpaceConfig {
  readonly numHeads: number;
  readonly headDim: number;
  /** The heads of a group share b and c, and are normalized together. */
  readonly numGroups: number;
  readonly stateDim: number;
  readonly numTaps: number;
  /** Whether the gated outputs are normalized. Default: true. */
  readonly hasNorm?: boolean;
  /** Default: all are 1. */
  readonly factors?: StateSpaceFactors;
}

/** @throws {FormatError} for inconsistent sizes */
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

/** Reads the sizes from a GGUF file. @throws {FormatError} for missing and inconsistent sizes */
export function stateSpaceFromGguf(fields: Fields, architecture: string, hasNorm = true): StateSpaceConfig {
  const count = (name: string): number => fields.count(`${architecture}.ssm.${name}`);
  const [numHeads, innerDim] = [count('time_step_rank'), count('inner_size')];
  const sizes = {
    numHeads,
    headDim: Math.floor(innerDim / numHeads),
    numGroups: count('group_count'),
    stateDim: count('state_size'),
    numTaps: count('conv_kernel'),
    hasNorm,
  };
  return checkedStateSpace(fields, sizes, innerDim);
}

/** @throws {FormatError} for unsupported settings of config.json: another activation, a limit of the time steps */
export function refuseStateSettings(fields: Fields): void {
  refuseSettings(fields, { hidden_act: ['silu', 'swish'] });
  const limits = fields.raw('time_step_limit');
  // JSON has no infinity: writers use strings or objects for it
  if (!Array.isArray(limits) || (limits[0] === 0 && !Number.isFinite(limits[1]))) return;
  throw fields.refusal('time_step_limit', 'no limit above 0', limits);
}

function innerDimOf({ numHeads, headDim }: StateSpaceConfig): number {
  return numHeads * headDim;
}

/** Channels of the convolution: x, b and c. */
function channelsOf(sizes: StateSpaceConfig): number {
  return innerDimOf(sizes) + 2 * sizes.numGroups * sizes.stateDim;
}

/** Taps and bias of a layer's convolution. */
export function convolutionTensors(
  file: ModelFile,
  [own, hub]: Names,
  numChannels: number,
  numTaps: number,
): WeightRequest[] {
  const names = tensorNames(file);
  const taps = `${own}.ssm_conv1d.weight`;
  return [
    {
      name: taps,
      storedName: names.isHub ? `${hub}.conv1d.weight` : taps,
      shape: names.isHub ? [numChannels, 1, numTaps] : [numChannels, numTaps],
      isFloat: true,
    },
    { ...names.bias([`${own}.ssm_conv1d`, `${hub}.conv1d`], numChannels), optional: true },
  ];
}

/** The tensors of a layer. @param hub the layer's module in Hugging Face checkpoints */
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
  yield* convolutionTensors(file, [own, hub], numChannels, numTaps);
  const [bias, decay, skip] = [`${own}.ssm_dt.bias`, `${own}.ssm_a`, `${own}.ssm_d`];
  yield { name: bias, storedName: isHub ? `${hub}.dt_bias` : bias, shape: [numHeads] };
  // GGUF files store values per head as a column, because Mamba has several columns
  const perHead = isHub ? [numHeads] : [numHeads, 1];
  const asLogarithm = isHub ? ({ storedAs: 'log-of-negative' } as const) : {};
  yield { name: decay, storedName: isHub ? `${hub}.A_log` : decay, shape: perHead, isFloat: true, ...asLogarithm };
  yield { name: skip, storedName: isHub ? `${hub}.D` : skip, shape: perHead, isFloat: true };
  if (sizes.hasNorm === false) return;
  const norm = `${own}.ssm_norm.weight`;
  const { numGroups } = sizes;
  yield {
    name: norm,
    storedName: isHub ? `${hub}.norm.weight` : norm,
    shape: isHub ? [innerDim] : [numGroups, innerDim / numGroups],
    isFloat: true,
  };
}

const onesName = 'ssm.ones';
const tapFactorsName = 'ssm.tapFactors';

/** The constants that layers of these sizes read. */
export function stateSpaceConstants(sizes: StateSpaceConfig): (readonly [name: string, values: Float32Array])[] {
  const { numGroups, stateDim, numTaps, factors } = sizes;
  const innerDim = innerDimOf(sizes);
  const constants: (readonly [string, Float32Array])[] = [];
  if (numGroups > 1) constants.push([onesName, new Float32Array(innerDim / numGroups).fill(1)]);
  if (factors === undefined) return constants;
  const values = new Float32Array(channelsOf(sizes) * numTaps).fill(factors.x);
  values.fill(factors.b, innerDim * numTaps, (innerDim + numGroups * stateDim) * numTaps);
  values.fill(factors.c, (innerDim + numGroups * stateDim) * numTaps);
  return [...constants, [tapFactorsName, values]];
}

/**
 * `out(norm(scan(silu(conv(x, b, c)), dt) * silu(z)))` of normalized inputs; z, x, b, c and dt are rows of one projection.
 */
export function stateSpaceMixer(
  step: DecoderStep,
  layer: number,
  input: ProgramTensor,
  sizes: StateSpaceConfig,
): ProgramTensor {
  const { b, weight } = step;
  const { numHeads, headDim, numGroups, stateDim, factors } = sizes;
  const own = `blk.${layer}`;
  const [innerDim, numChannels] = [innerDimOf(sizes), channelsOf(sizes)];
  const projected = (begin: number, length: number): ProgramTensor =>
    linearRows(step, `${own}.ssm_in`, input, begin, begin + length);
  const z = scaled(step, projected(0, innerDim), factors?.z ?? 1);
  const channels = projected(innerDim, numChannels);
  const convolved = convolve(step, layer, channels, sizes.numTaps, factors !== undefined);
  const dt = scaled(step, projected(innerDim + numChannels, numHeads), factors?.dt ?? 1);
  const part = (begin: number, count: number, length: number): ProgramTensor => {
    const x = b.activation('slice-columns', { x: convolved }, { begin, length: count * length });
    return b.reshape(x, ['T', count, length]);
  };
  const groupDim = numGroups * stateDim;
  const scanned = b.append(
    'selective-scan',
    {
      x: part(0, numHeads, headDim),
      b: part(innerDim, numGroups, stateDim),
      c: part(innerDim + groupDim, numGroups, stateDim),
      dt,
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
  return linear(step, `${own}.ssm_out`, sizes.hasNorm === false ? gated : groupNorm(step, layer, gated, numGroups));
}

/**
 * `silu(conv(x))` with the taps and the bias of the layer. Factors of channels are applied to the taps, because the convolution
 * is linear except for its bias.
 */
export function convolve(
  step: DecoderStep,
  layer: number,
  x: ProgramTensor,
  numTaps: number,
  hasFactors = false,
): ProgramTensor {
  const { b, weight } = step;
  const numChannels = Number(x.shape.at(-1));
  const own = `blk.${layer}.ssm_conv1d`;
  const shaped = (tensor: ProgramTensor): ProgramTensor => b.reshape(tensor, [numChannels, numTaps]);
  const stored = shaped(weight(`${own}.weight`));
  const { y } = b.append(
    'short-conv',
    {
      x,
      weight: hasFactors ? b.activation('multiply', { a: stored, b: shaped(step.constant(tapFactorsName)) }) : stored,
      bias: step.optionalWeight(`${own}.bias`),
      ...step.stateInputs(),
    },
    { activation: 'silu' },
    { state: step.state(layer, 'conv', [numTaps - 1, numChannels]) },
  );
  return y as ProgramTensor;
}

/** An RMS norm per group of heads, as in the implementation of the paper and in llama.cpp. */
function groupNorm(step: DecoderStep, layer: number, x: ProgramTensor, numGroups: number): ProgramTensor {
  const { b, config } = step;
  const weight = step.weight(`blk.${layer}.ssm_norm.weight`);
  const innerDim = Number(x.shape.at(-1));
  const attributes = { eps: config.normEps };
  if (numGroups === 1) return b.activation('rms-norm', { x, weight: b.reshape(weight, [innerDim]) }, attributes);
  const groups = b.reshape(x, ['T', numGroups, innerDim / numGroups]);
  const normed = b.activation('rms-norm', { x: groups, weight: step.constant(onesName) }, attributes);
  return b.activation('multiply', { a: b.reshape(normed, ['T', innerDim]), b: rowPerToken(step, weight) });
}
