/** Mixtures of experts: their settings and tensors in both formats, and the op records of their layers. */
import type { StoredTensor } from '@winnow/bytes';
import type { ProgramTensor } from '@winnow/ops';
import { dtypeInfo } from '@winnow/tensor';
import type { Fields } from '../file/fields.js';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig, ExpertConfig, ExpertGroups } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import {
  expertMatrices,
  expertMatrixName,
  type ExpertMatrix,
  type ExpertPass,
  type LayerExperts,
} from '../program/expert-placement.js';
import { refuseSettings } from '../settings/config-checks.js';
import { gatedFfnTensors, tensorNames, usualTensors, type UsualTensors } from '../program/tensors.js';
import { add, gatedFeedForward, linear } from './decoder-blocks.js';

/** Far more experts than any model has; a plausibility limit for untrusted files. */
const maxExperts = 65536;

/** How the router's scores are processed when the file does not specify it. */
export type Routing = Pick<ExpertConfig, 'score' | 'normalize'>;

/** How groups of experts are ranked. Default: settings with more than one group are rejected. */
export type GroupScore = NonNullable<ExpertConfig['groups']>['score'];

/** Values of `expert_gating_func`. */
const gatingFunctions: Readonly<Record<number, ExpertConfig['score']>> = { 1: 'softmax', 2: 'sigmoid' };

/** Shared experts: one with a gate; a number of them without gates; or one without a gate whose size the file specifies. */
export type SharedExperts = 'none' | 'gated' | 'counted' | 'sized';

/** The expert size defaults to the FFN dimension. @throws {FormatError} for invalid settings */
export function expertsFromGguf(
  { fields }: ModelFile,
  { architecture, ffnDim, numLayers }: DecoderConfig,
  routing: Routing,
  shared: SharedExperts = 'none',
  groupScore?: GroupScore,
): ExpertConfig {
  const key = (name: string): string => `${architecture}.${name}`;
  const expertDim = fields.count(key('expert_feed_forward_length'), ffnDim);
  const gating = fields.integer(key('expert_gating_func'), 0);
  const score = gating === 0 ? routing.score : gatingFunctions[gating];
  if (score === undefined) throw fields.refusal(key('expert_gating_func'), '1 or 2', gating);
  const numDense = fields.integer(key('leading_dense_block_count'), 0);
  const scale = fields.number(key('expert_weights_scale'), 1);
  return checkedExperts(fields, {
    numExperts: fields.count(key('expert_count')),
    numChosen: fields.count(key('expert_used_count')),
    ffnDim: expertDim,
    sharedFfnDim: shared === 'gated' ? fields.count(key('expert_shared_feed_forward_length'), ffnDim) : 0,
    ...(shared === 'sized' ? sizedShared(fields.integer(key('expert_shared_feed_forward_length'), 0)) : {}),
    ...(shared === 'counted' ? countedShared(fields.integer(key('expert_shared_count'), 0), expertDim) : {}),
    ...groupsOf(fields, [key('expert_group_count'), key('expert_group_used_count')], groupScore),
    score,
    normalize: fields.boolean(key('expert_weights_norm'), routing.normalize),
    scale: scale === 0 ? 1 : scale,
    layers: layersFrom(numLayers, (layer) => layer >= numDense),
  });
}

/** Names of the settings in config.json. */
export interface HubExperts extends Routing {
  /** Setting with the number of experts. Default: `num_experts`. */
  readonly count?: string;
  /** Setting with the expert size. Default: `moe_intermediate_size`. */
  readonly size?: string;
  /** Default: none. */
  readonly shared?: SharedExperts;
  /** Setting with the factor of the weights. */
  readonly scale?: string;
  /** How groups of experts are ranked. */
  readonly groupScore?: GroupScore | undefined;
  /** Default: every `decoder_sparse_step`-th layer except those of `mlp_only_layers`. */
  readonly isExpertLayer?: (layer: number) => boolean;
}

export function expertsFromHub(
  { fields }: ModelFile,
  { numLayers }: DecoderConfig,
  {
    score,
    normalize,
    count = 'num_experts',
    size = 'moe_intermediate_size',
    shared = 'none',
    scale,
    groupScore,
    isExpertLayer,
  }: HubExperts,
): ExpertConfig {
  const ffnDim = fields.count(size);
  return checkedExperts(fields, {
    numExperts: fields.count(count),
    numChosen: fields.count('num_experts_per_tok'),
    ffnDim,
    sharedFfnDim: shared === 'gated' ? fields.count('shared_expert_intermediate_size') : 0,
    ...(shared === 'sized' ? sizedShared(fields.integer('shared_intermediate_size', 0)) : {}),
    ...(shared === 'counted' ? countedShared(fields.integer('n_shared_experts', 0), ffnDim) : {}),
    ...groupsOf(fields, ['n_group', 'topk_group'], groupScore),
    score,
    normalize: fields.boolean('norm_topk_prob', normalize),
    scale: scale === undefined ? 1 : fields.number(scale, 1),
    layers: layersFrom(numLayers, isExpertLayer ?? sparseLayers(fields)),
  });
}

/** Reads the number of groups and the number of selected groups from the settings of these names. */
function groupsOf(
  fields: Fields,
  [count, chosen]: readonly [count: string, chosen: string],
  score: GroupScore | undefined,
): Pick<ExpertConfig, 'groups'> {
  if (score === undefined) refuseSettings(fields, { [count]: [0, 1] });
  const numGroups = fields.integer(count, 1);
  if (score === undefined || numGroups <= 1) return {};
  return { groups: { numGroups, numChosen: fields.count(chosen), score } };
}

/** Shared experts without gates, whose matrices files store as those of one large expert. */
function countedShared(numShared: number, ffnDim: number): Pick<ExpertConfig, 'sharedFfnDim' | 'numShared'> {
  return { sharedFfnDim: numShared * ffnDim, numShared };
}

function sizedShared(sharedFfnDim: number): Pick<ExpertConfig, 'sharedFfnDim' | 'numShared'> {
  return sharedFfnDim === 0 ? { sharedFfnDim } : { sharedFfnDim, numShared: 1 };
}

function sparseLayers(fields: Fields): (layer: number) => boolean {
  const dense = fields.raw('mlp_only_layers') ?? [];
  if (!Array.isArray(dense)) throw fields.refusal('mlp_only_layers', 'an array', dense);
  const step = fields.count('decoder_sparse_step', 1);
  return (layer) => !dense.includes(layer) && (layer + 1) % step === 0;
}

function layersFrom(numLayers: number, hasExperts: (layer: number) => boolean): boolean[] {
  return Array.from({ length: numLayers }, (_, layer) => hasExperts(layer));
}

function checkedExperts(fields: Fields, experts: ExpertConfig): ExpertConfig {
  const { numExperts, numChosen, scale, groups } = experts;
  if (numExperts > maxExperts) throw fields.refusal('number of experts', `at most ${maxExperts}`, numExperts);
  if (numChosen > numExperts) throw fields.refusal('selected experts', `at most ${numExperts}`, numChosen);
  if (groups !== undefined) checkGroups(fields, experts, groups);
  if (!Number.isFinite(Math.fround(scale)))
    throw fields.refusal('scale of experts', 'a number that f32 can hold', scale);
  return experts;
}

function checkGroups(fields: Fields, { numExperts, numChosen }: ExpertConfig, groups: ExpertGroups): void {
  const size = numExperts / groups.numGroups;
  const smallest = groups.score === 'best-two' ? 2 : 1;
  if (!Number.isInteger(size) || size < smallest) {
    const expected = `a divisor of ${numExperts} with groups of at least ${smallest}`;
    throw fields.refusal('groups of experts', expected, groups.numGroups);
  }
  if (groups.numChosen > groups.numGroups || groups.numChosen * size < numChosen) {
    const expected = `at most ${groups.numGroups}, with ${numChosen} experts or more`;
    throw fields.refusal('selected groups of experts', expected, groups.numChosen);
  }
}

/** Hugging Face names of the experts' module and of its tensors. */
export interface HubExpertNames {
  /** Module within a layer, empty for the layer itself. Default: `mlp`. */
  readonly module?: string;
  /** Default: `gate_proj up_proj down_proj`. */
  readonly matrices?: readonly [gate: string, up: string, down: string];
  /** Default: `gate`. */
  readonly router?: string;
  /** The fused gate and up matrices of all experts, and their down matrices. Default: `experts.gate_up_proj`, `experts.DOWN`. */
  readonly stacked?: readonly [both: string, down: string];
  /** Whether the stacked matrices are stored as `[inputs, outputs]`, unless quantized. */
  readonly isTransposed?: boolean;
  /** Whether they are also stored with alternating columns of gate and up. */
  readonly isInterleaved?: boolean;
  /** Whether the router and the experts have biases. */
  readonly hasBias?: boolean;
  /** Module of the shared expert within a layer. Default: `mlp.shared_expert`. */
  readonly shared?: string;
  /** The fused gate and up matrices of the shared expert, and its down matrix, within its module. Default: three matrices. */
  readonly sharedMatrices?: readonly [both: string, down: string];
  /** The bias of the router's scores, which affects only the selection. Default: none. */
  readonly scoreBias?: string;
}

/** The router and the stacked matrices of a layer's experts, which the file stores stacked, fused or separately. */
export function expertTensors(
  file: ModelFile,
  { hiddenDim }: DecoderConfig,
  experts: ExpertConfig,
  layer: number,
  layout: HubExpertNames = {},
): WeightRequest[] {
  const { numExperts, ffnDim } = experts;
  const names = tensorNames(file);
  const { module = 'mlp' } = layout;
  const hub = `model.layers.${layer}${module === '' ? '' : `.${module}`}`;
  const shapes = { gate: [ffnDim, hiddenDim], up: [ffnDim, hiddenDim], down: [hiddenDim, ffnDim] } as const;
  const bias = layout.hasBias === true ? 'required' : 'none';
  const routerNames = [`blk.${layer}.ffn_gate_inp`, `${hub}.${layout.router ?? 'gate'}`] as const;
  return [
    ...names.matrix(routerNames, [numExperts, hiddenDim], bias),
    ...expertMatrices.flatMap((kind) =>
      stackTensors(file, { kind, layer, hub, layout, shape: [numExperts, ...shapes[kind]] }),
    ),
    ...scoreBiasTensor(file, numExperts, layer, layout.scoreBias && `${hub}.${layout.scoreBias}`),
    ...sharedTensors(file, hiddenDim, experts, layer, layout),
  ];
}

function scoreBiasTensor(
  file: ModelFile,
  numExperts: number,
  layer: number,
  hubName: string | undefined,
): WeightRequest[] {
  if (hubName === undefined) return [];
  const name = `blk.${layer}.exp_probs_b.bias`;
  const storedName = file.format === 'safetensors' ? hubName : name;
  return [{ name, storedName, shape: [numExperts], optional: true }];
}

/** One of the three matrices, of all experts of a layer. */
interface ExpertStack {
  readonly kind: ExpertMatrix;
  readonly layer: number;
  /** Module of the layer's experts in Hugging Face checkpoints. */
  readonly hub: string;
  readonly layout: HubExpertNames;
  readonly shape: readonly [numExperts: number, numOutputs: number, numInputs: number];
}

function stackTensors(file: ModelFile, { kind, layer, hub, layout, shape }: ExpertStack): WeightRequest[] {
  const { matrices = ['gate_proj', 'up_proj', 'down_proj'], isInterleaved = false, hasBias = false } = layout;
  const { isTransposed: isStoredTransposed = isInterleaved } = layout;
  const { tensors } = file.store;
  const { isHub } = tensorNames(file);
  const index = expertMatrices.indexOf(kind);
  const [numExperts, numOutputs] = shape;
  const name = expertMatrixName(layer, kind);
  const [both, down] = layout.stacked ?? ['experts.gate_up_proj', `experts.${matrices[2]}`];
  const fused = isHub ? `${hub}.${both}` : `blk.${layer}.ffn_gate_up_exps.weight`;
  const isFused = kind !== 'down' && tensors.has(fused);
  const own = isHub ? `${hub}.${kind === 'down' ? down : `experts.${matrices[index] as string}`}` : name;
  const storedName = isFused ? fused : own;
  const step = isHub && isInterleaved ? 2 : 1;
  const begin = step === 2 ? index : index * numOutputs;
  const rows = isFused ? { rows: { begin, total: 2 * numOutputs, step } } : {};
  const isTransposed = isHub && isStoredTransposed && !isBlocks(tensors.get(storedName));
  // older files have one tensor per expert
  const single = (expert: number): string =>
    isHub
      ? `${hub}.experts.${expert}.${matrices[index] as string}.weight`
      : `blk.${layer}.ffn_${kind}.${expert}.weight`;
  const isSplit = !isFused && tensors.has(single(0));
  const stackOf = isSplit ? { stackOf: Array.from({ length: numExperts }, (_, expert) => single(expert)) } : {};
  const biasName = expertBiasName(layer, kind);
  const storedBias = isHub ? `${storedName}_bias` : storedName.replace(/weight$/, 'bias');
  const biasShape = [numExperts, numOutputs];
  return [
    { name, storedName, shape, ...rows, ...stackOf, ...(isTransposed ? { storedAs: 'transposed' } : {}) },
    ...(hasBias ? [{ name: biasName, storedName: storedBias, shape: biasShape, ...rows, isFloat: true }] : []),
  ];
}

function isBlocks(stored: StoredTensor | undefined): boolean {
  return stored !== undefined && dtypeInfo(stored.dtype).blockSize > 1;
}

/** Name of the biases `[X, O]` of a layer's experts. */
function expertBiasName(layer: number, matrix: ExpertMatrix): string {
  return `blk.${layer}.ffn_${matrix}_exps.bias`;
}

function sharedTensors(
  file: ModelFile,
  hiddenDim: number,
  { sharedFfnDim, numShared }: ExpertConfig,
  layer: number,
  { shared = 'mlp.shared_expert', sharedMatrices }: HubExpertNames,
): WeightRequest[] {
  if (sharedFfnDim === 0) return [];
  const names = tensorNames(file);
  const own = `blk.${layer}`;
  const hub = `model.layers.${layer}.${shared}`;
  const gate = {
    name: `${own}.ffn_gate_inp_shexp.weight`,
    storedName: names.isHub ? `${hub}_gate.weight` : `${own}.ffn_gate_inp_shexp.weight`,
    shape: names.isHub ? [1, hiddenDim] : [hiddenDim],
  };
  const [both = '', down = 'down_proj'] = sharedMatrices ?? [];
  return [
    ...names.fused({
      fused: [`${own}.ffn_gate_up_shexp`, `${hub}.${both}`],
      parts: [
        [`${own}.ffn_gate_shexp`, `${hub}.gate_proj`, sharedFfnDim],
        [`${own}.ffn_up_shexp`, `${hub}.up_proj`, sharedFfnDim],
      ],
      numInputs: hiddenDim,
      bias: 'none',
      isSplit: !names.isHub || sharedMatrices === undefined,
    }),
    ...names.matrix([`${own}.ffn_down_shexp`, `${hub}.${down}`], [hiddenDim, sharedFfnDim], 'none'),
    ...(numShared === undefined ? [gate] : []),
  ];
}

/** All tensors of a decoder of pre-norm blocks with mixtures of experts in some layers. */
export function expertDecoderTensors(
  file: ModelFile,
  config: DecoderConfig,
  experts: ExpertConfig,
  usual: UsualTensors,
  names: HubExpertNames = {},
): Generator<WeightRequest> {
  return usualTensors(file, config, usual, (layer) =>
    experts.layers[layer] === false
      ? gatedFfnTensors(file, config, layer, usual)
      : expertTensors(file, config, experts, layer, names),
  );
}

/** The FFN of a layer: a mixture of experts or a dense FFN. */
export function feedForwardOf(
  experts: ExpertConfig | undefined,
): (step: DecoderStep, layer: number, x: ProgramTensor) => ProgramTensor {
  return (step, layer, x) =>
    experts === undefined || experts.layers[layer] === false
      ? gatedFeedForward(step, layer, x)
      : expertFeedForward(step, layer, x, experts);
}

/**
 * The weighted sum `sum_e w_e down_e(act(gate_e x) * up_e x)` of the selected experts for normalized inputs `[T, E]`,
 * plus the shared expert if there is one, times `sigmoid(g x)` if it has a gate.
 * @param routerInput what the router of a layer reads. Default: x
 */
export function expertFeedForward(
  step: DecoderStep,
  layer: number,
  x: ProgramTensor,
  experts: ExpertConfig,
  routerInput: (layer: number) => ProgramTensor = () => x,
): ProgramTensor {
  const { b, config, weight } = step;
  const { numChosen } = experts;
  const { ids, weights } = route(step, layer, routerInput(layer), experts);
  const scaled = experts.scalesInput === true ? b.activation('scale-rows', { x, scales: weights }) : x;
  const input = b.reshape(scaled, ['T', 1, config.hiddenDim]);
  const biased = (kind: ExpertMatrix, y: ProgramTensor): ProgramTensor => {
    const bias = step.optionalWeight(expertBiasName(layer, kind));
    return bias === undefined ? y : b.activation('expert-bias', { x: y, ids, bias });
  };
  /** Appends the experts of a pass and returns their results, `[T, K, E]`. */
  const writePass = (pass: ExpertPass | undefined): ProgramTensor => {
    const product = (kind: ExpertMatrix, rows: ProgramTensor): ProgramTensor =>
      b.activation('expert-matmul', {
        x: rows,
        ids,
        weight: pass === undefined ? weight(expertMatrixName(layer, kind)) : pass.matrix(kind),
        slots: pass?.slots,
      });
    const gate = biased('gate', product('gate', input));
    const up = biased('up', product('up', input));
    // gate and up of experts of other passes hold only their biases; the down product sets their results to 0
    return product('down', b.activation('glu', { gate, up }, { kind: config.activation, ...experts.clamp }));
  };
  const node: LayerExperts = {
    layer,
    ids,
    numExperts: experts.numExperts,
    numChosen,
    predict: (other) =>
      experts.layers[other] === true ? route(step, other, routerInput(other), experts).ids : undefined,
  };
  let products: ProgramTensor | undefined;
  for (const pass of step.experts?.(b, node) ?? [undefined]) {
    // passes are added before weighting: each row is nonzero in only one pass, so the sum is exact
    const some = writePass(pass);
    products = products === undefined ? some : add(step, products, some);
  }
  const results = biased('down', products as ProgramTensor);
  const y =
    experts.scalesInput === true
      ? b.reshape(results, ['T', config.hiddenDim])
      : b.activation('expert-combine', { x: results, weights: scaledByExpert(step, layer, ids, weights) });
  return experts.sharedFfnDim === 0 ? y : add(step, y, sharedExpert(step, layer, x));
}

/** The weights of the selected experts times the factors of these experts, in models that have them. */
function scaledByExpert(
  { b, optionalWeight }: DecoderStep,
  layer: number,
  ids: ProgramTensor,
  weights: ProgramTensor,
): ProgramTensor {
  const factors = optionalWeight(`blk.${layer}.ffn_down_exps.scale`);
  if (factors === undefined) return weights;
  const [numChosen, numExperts] = [Number(weights.shape[1]), Number(factors.shape[0])];
  // added to zeros, biases of one value are a lookup of the factors
  const zeros = b.activation('scale', { x: b.reshape(weights, ['T', numChosen, 1]) }, { factor: 0 });
  const chosen = b.activation('expert-bias', { x: zeros, ids, bias: b.reshape(factors, [numExperts, 1]) });
  return b.activation('multiply', { a: weights, b: b.reshape(chosen, ['T', numChosen]) });
}

/** The experts that the router of a layer selects. */
function route(
  { b, weight, optionalWeight }: DecoderStep,
  layer: number,
  x: ProgramTensor,
  { numChosen, score, normalize, scale, groups }: ExpertConfig,
): Record<'ids' | 'weights', ProgramTensor> {
  const own = `blk.${layer}`;
  const router = { weight: weight(`${own}.ffn_gate_inp.weight`), bias: optionalWeight(`${own}.ffn_gate_inp.bias`) };
  const logits = b.activation('matmul', { x, ...router });
  const bias = optionalWeight(`${own}.exp_probs_b.bias`);
  const grouping =
    groups === undefined
      ? {}
      : { numGroups: groups.numGroups, numChosenGroups: groups.numChosen, groupScore: groups.score };
  const attributes = { k: numChosen, score, normalize, scale, ...grouping };
  const routed = b.append('expert-route', { logits, bias }, attributes);
  return routed as Record<'ids' | 'weights', ProgramTensor>;
}

function sharedExpert(step: DecoderStep, layer: number, x: ProgramTensor): ProgramTensor {
  const { b, config, weight } = step;
  const own = `blk.${layer}`;
  const gate = linear(step, `${own}.ffn_gate_shexp`, x);
  const up = linear(step, `${own}.ffn_up_shexp`, x);
  const hidden = b.activation('glu', { gate, up }, { kind: config.activation });
  const y = linear(step, `${own}.ffn_down_shexp`, hidden);
  if (!step.hasWeight(`${own}.ffn_gate_inp_shexp.weight`)) return y;
  // files store the gate as a vector or as a matrix of one row
  const row = b.reshape(weight(`${own}.ffn_gate_inp_shexp.weight`), [1, config.hiddenDim]);
  const logit = b.activation('matmul', { x, weight: row });
  return b.activation('scale-rows', { x: y, scales: b.activation('activation', { x: logit }, { kind: 'sigmoid' }) });
}
