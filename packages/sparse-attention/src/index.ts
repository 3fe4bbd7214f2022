/// <reference lib="esnext.disposable" preserve="true" />
export { attend, type OneShotOptions, type OneShotResult } from './layer/attend.js';
export type { Rotate } from './layer/call.js';
export { attendKeys, type AttendKeysOptions, type AttendKeysResult } from './layer/attend-keys.js';
export type { AttendOptions, AttentionResult, KeyVisit } from './layer/options.js';
export { AttentionLayer, type AttentionLayerOptions, type AttentionLayerReport } from './layer/attention-layer.js';
export type { HeavyHitters } from './layer/heavy-hitters.js';
export type { LayerSizes } from './layer/shape.js';
export { createAttentionLowering, type AttentionLoweringOptions } from './lowering/attention-lowering.js';
export { pageTopKAttributes, type AttentionOutputs } from './lowering/lower-policy.js';
export { attentionRequirements, checkBlockSize, type AttentionRequirements } from './lowering/requirements.js';
export { appendSideData, boxBufferNames, type BoxTensors, type LayerCache } from './lowering/side-data.js';
export {
  auditPairs,
  countPairs,
  countRow,
  subquadraticKeys,
  type PairCount,
  type QueryKeys,
  type SubquadraticKeysOptions,
} from './lowering/subquadratic.js';
export {
  attentionFromOptions,
  checkAttention,
  denseAttention,
  formatAttention,
  parseAttention,
  type AttentionOptions,
} from './policy/attention-spec.js';
export {
  clampBudgets,
  h2oPairs,
  sparqTransfers,
  type H2oBudgets,
  type H2oPairs,
  type SparqTransfers,
} from './policy/costs.js';
export { modelPresets, presetPolicy, type ModelPreset } from './policy/model-presets.js';
export { supportsPhase } from './policy/fields.js';
export { formatPolicy, parsePolicy } from './policy/text.js';
export type {
  AttentionPhase,
  AttentionPolicy,
  AttentionSpec,
  DensePolicy,
  H2oPrefillPolicy,
  LayerOverride,
  LayerPolicy,
  OracleTopKPolicy,
  PageTopKPolicy,
  PolicyKind,
  SparqPolicy,
  StreamingPolicy,
  SubquadraticPolicy,
  VerifiedTopKPolicy,
} from './policy/kinds.js';
export { checkPolicy } from './policy/values.js';
export { resolvePolicy, type ResolvePolicyOptions } from './policy/resolve-policy.js';
export {
  formatTunedPolicy,
  readTunedPolicy,
  specOfLayers,
  type MeasuredText,
  type PhaseFigures,
  type PolicyBudget,
  type ReadTunedPolicyOptions,
  type TunedPolicy,
} from './policy/tuned-policy.js';
export {
  FastGrnnGate as experimental_FastGrnnGate,
  type FastGrnnWeights as experimental_FastGrnnWeights,
} from './policy/salience-gate.js';

export { compareToDense, type AttentionTensors, type CompareOptions, type HeadQuality } from './quality/compare.js';
export {
  exactWeights,
  jaccard,
  massCaptured,
  outputErrors,
  recall,
  summarize,
  type Summary,
} from './quality/metrics.js';
export {
  createRotate,
  headKinds,
  syntheticAttention,
  type HeadKind,
  type SyntheticAttention,
  type SyntheticOptions,
} from './quality/synthetic.js';
export { largestIndices } from './quality/top-k.js';
export { VisitPicture } from './quality/visit-picture.js';
