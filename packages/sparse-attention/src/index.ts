export {
  attend,
  AttentionLayer,
  createFamily,
  type AttentionLayerOptions,
  type AttentionLayerReport,
  type CreateFamilyOptions,
  type OneShotOptions,
  type OneShotResult,
} from './attention-layer.js';
export type { AttendOptions, AttentionFamily, FamilyOptions, FamilyShape, VisitSink } from './core/family.js';
export { KeyColumns } from './core/key-columns.js';
export { KvStore, type KvStoreOptions } from './core/kv-store.js';
export { PageBoxes, pagesPerSuper } from './core/page-boxes.js';
export { rowsOf, type KvRows, type Rows } from './core/rows.js';
export { TopK } from './core/top-k.js';
export { DenseAttention } from './families/dense.js';
export { clampBudgets, H2oMemory, h2oPairs, jaccard, type H2oBudgets, type H2oPairs } from './families/h2o-memory.js';
export { H2oPrefillAttention, type H2oPrefillOptions } from './families/h2o-prefill.js';
export { OracleTopKAttention } from './families/oracle-top-k.js';
export { PageTopKAttention, type PageTopKOptions, type PageTopKReport } from './families/page-top-k.js';
export { SparqAttention, sparqTransfers, type SparqOptions, type SparqTransfers } from './families/sparq.js';
export { StreamingAttention, type Rotate, type StreamingOptions } from './families/streaming.js';
export {
  attentionFromOptions,
  checkAttention,
  denseAttention,
  formatAttention,
  parseAttention,
  type AttentionOptions,
} from './policy/attention-spec.js';
export { kvBytes, modelPresets, presetPolicy, type KvShape, type ModelPreset } from './policy/model-presets.js';
export { supportsPhase } from './policy/policy-fields.js';
export { formatPolicy, parsePolicy } from './policy/policy-text.js';
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
} from './policy/policy-types.js';
export { checkPolicy } from './policy/policy-values.js';
export { resolvePolicy } from './policy/resolve-policy.js';
export { compareToDense, type CompareOptions, type HeadQuality } from './quality/compare.js';
export { exactWeights, massCaptured, outputErrors, recall, summarise, type Summary } from './quality/metrics.js';
export {
  createRotate,
  headKinds,
  syntheticAttention,
  type HeadKind,
  type SyntheticAttention,
  type SyntheticOptions,
} from './quality/synthetic.js';
export { VisitPicture } from './quality/visit-picture.js';
export {
  auditPairs,
  CandidateSet,
  countPairs,
  countRow,
  type CandidateOptions,
  type PairCount,
} from './subquadratic/candidates.js';
export { Landmarks } from './subquadratic/landmarks.js';
export {
  FastGrnnGate as experimental_FastGrnnGate,
  type FastGrnnWeights as experimental_FastGrnnWeights,
} from './subquadratic/salience-gate.js';
export {
  SubquadraticAttention,
  type SubquadraticAttendOptions,
  type SubquadraticOptions,
} from './subquadratic/subquadratic.js';
export {
  attentionRequirements,
  checkBlockSize,
  type AttentionRequirements,
} from './lowering/attention-requirements.js';
export { createAttentionLowering, type AttentionLoweringOptions } from './lowering/attention-lowering.js';
export { appendSideData, boxBufferNames, type BoxTensors } from './lowering/side-data.js';
