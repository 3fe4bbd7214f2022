/**
 * Mamba (arXiv:2312.00752): layers `x += out(scan(u, b, c, dt) * silu(z))` of normalized inputs, where `u = silu(conv(x))`; one
 * projection gives x and z, another one of u gives a low-rank dt, b and c; the decay has a value per channel and state column.
 * Falcon Mamba (arXiv:2410.05355) normalizes the low-rank dt, b and c without weights.
 */
import type { ProgramTensor } from '@winnow/ops';
import { add, describeDecoder, linear, linearRows, rmsNorm } from '../blocks/decoder-blocks.js';
import { convolutionTensors, convolve, refuseStateSettings } from '../blocks/state-space.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { isDerivedTensor, tensorNames } from '../program/tensors.js';
import { attentionFreeFromGguf, attentionFreeFromHub, attentionFreeTensors } from '../settings/attention-free.js';
import { refuseSettings } from '../settings/config-checks.js';

const architecture = 'mamba';

interface ScanConfig {
  readonly innerDim: number;
  readonly stateDim: number;
  /** Rank of dt. */
  readonly rank: number;
  readonly numTaps: number;
  readonly isNormalized: boolean;
}

export const mamba: Architecture = {
  name: architecture,
  models: 'Mamba, Falcon Mamba',
  limits: ['Options for attention and for KV cache tiers are rejected.'],
  ggufNames: [architecture],
  hubNames: [architecture, 'falcon_mamba'],
  hubClass: 'MambaForCausalLM',
  async describe(file) {
    const config =
      file.format === 'gguf'
        ? attentionFreeFromGguf(file, architecture)
        : attentionFreeFromHub(file, architecture, true);
    const sizes = sizesOf(file, config);
    return describeDecoder({
      config,
      weights: collectWeights(file.store, requests(file, config, sizes), (name) => isDerivedTensor(name, config)),
      constants: sizes.isNormalized ? ['dt', 'state'].map((kind) => [onesName(kind), ones(kind, sizes)] as const) : [],
      norm: rmsNorm,
      layer: (step, layer, x) => add(step, x, mixer(step, layer, rmsNorm(step, `blk.${layer}.attn_norm`, x), sizes)),
    });
  },
};

const onesName = (kind: string): string => `ssm.${kind}Ones`;

function ones(kind: string, { rank, stateDim }: ScanConfig): Float32Array {
  return new Float32Array(kind === 'dt' ? rank : stateDim).fill(1);
}

/** The value of all published models; GGUF files have no key for it. */
const mixerEps = 1e-6;

function sizesOf({ format, fields }: ModelFile, { hiddenDim }: DecoderConfig): ScanConfig {
  const isGguf = format === 'gguf';
  const count = (own: string, hub: string, fallback?: number): number =>
    isGguf ? fields.count(`${architecture}.ssm.${own}`) : fields.count(hub, fallback);
  const isFalcon = !isGguf && fields.string('model_type') === 'falcon_mamba';
  if (!isGguf) {
    refuseStateSettings(fields);
    refuseSettings(fields, { use_bias: [false], ...(isFalcon ? { mixer_rms_eps: [mixerEps] } : {}) });
  }
  const hasRank = isGguf || (fields.has('time_step_rank') && fields.raw('time_step_rank') !== 'auto');
  const sizes = {
    innerDim: isGguf
      ? fields.count(`${architecture}.ssm.inner_size`)
      : fields.count('intermediate_size', Math.floor(fields.number('expand', 2) * hiddenDim)),
    stateDim: count('state_size', 'state_size', 16),
    rank: hasRank ? count('time_step_rank', 'time_step_rank') : Math.ceil(hiddenDim / 16),
    numTaps: count('conv_kernel', 'conv_kernel', 4),
    isNormalized: isGguf ? fields.boolean(`${architecture}.ssm.dt_b_c_rms`, false) : isFalcon,
  };
  if (sizes.numTaps < 2) throw fields.refusal('kernel size of the convolution', 'at least 2', sizes.numTaps);
  return sizes;
}

function* requests(file: ModelFile, config: DecoderConfig, sizes: ScanConfig): Generator<WeightRequest> {
  const { hiddenDim, numLayers } = config;
  const { innerDim, stateDim, rank, numTaps } = sizes;
  const names = tensorNames(file);
  const { isHub } = names;
  yield* attentionFreeTensors(file, config);
  for (let layer = 0; layer < numLayers; layer++) {
    const [own, hub] = [`blk.${layer}`, `backbone.layers.${layer}.mixer`];
    yield* names.matrix([`${own}.ssm_in`, `${hub}.in_proj`], [2 * innerDim, hiddenDim], 'none');
    yield* names.matrix([`${own}.ssm_x`, `${hub}.x_proj`], [rank + 2 * stateDim, innerDim], 'none');
    yield* names.matrix([`${own}.ssm_dt`, `${hub}.dt_proj`], [innerDim, rank], 'required');
    yield* names.matrix([`${own}.ssm_out`, `${hub}.out_proj`], [hiddenDim, innerDim], 'none');
    yield* convolutionTensors(file, [own, hub], innerDim, numTaps);
    const asLogarithm = isHub ? ({ storedAs: 'log-of-negative' } as const) : {};
    const decay = { name: `${own}.ssm_a`, storedName: isHub ? `${hub}.A_log` : `${own}.ssm_a` };
    yield { ...decay, shape: [innerDim, stateDim], isFloat: true, ...asLogarithm };
    yield { name: `${own}.ssm_d`, storedName: isHub ? `${hub}.D` : `${own}.ssm_d`, shape: [innerDim] };
  }
}

function mixer(step: DecoderStep, layer: number, input: ProgramTensor, sizes: ScanConfig): ProgramTensor {
  const { b, weight } = step;
  const { innerDim, stateDim, rank, numTaps, isNormalized } = sizes;
  const own = `blk.${layer}`;
  const u = convolve(step, layer, linearRows(step, `${own}.ssm_in`, input, 0, innerDim), numTaps);
  const part = (begin: number, length: number, kind: string): ProgramTensor => {
    const x = linearRows(step, `${own}.ssm_x`, u, begin, begin + length);
    return isNormalized ? b.activation('rms-norm', { x, weight: step.constant(onesName(kind)) }, { eps: mixerEps }) : x;
  };
  const vectors = (begin: number): ProgramTensor => b.reshape(part(begin, stateDim, 'state'), ['T', 1, stateDim]);
  const scanned = b.append(
    'selective-scan',
    {
      x: b.reshape(u, ['T', innerDim, 1]),
      b: vectors(rank),
      c: vectors(rank + stateDim),
      dt: linear(step, `${own}.ssm_dt`, part(0, rank, 'dt')),
      decay: weight(`${own}.ssm_a`),
      skip: weight(`${own}.ssm_d`),
      ...step.stateInputs(),
    },
    {},
    { state: step.state(layer, 'memory', [innerDim, 1, stateDim]) },
  );
  const y = b.reshape(scanned['y'] as ProgramTensor, ['T', innerDim]);
  const z = linearRows(step, `${own}.ssm_in`, input, innerDim, 2 * innerDim);
  return linear(step, `${own}.ssm_out`, b.activation('glu', { gate: z, up: y }, { kind: 'silu' }));
}
