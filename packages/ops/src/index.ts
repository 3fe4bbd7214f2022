/// <reference lib="esnext.disposable" preserve="true" />
export { activationFunction, activationKinds, type ActivationKind } from './numerics/activation-functions.js';
export {
  checkCopy,
  copyBytes,
  maxInvariantTokens,
  type Backend,
  type BackendLimits,
  type BufferGroup,
  type BufferHandle,
  type CopyRequest,
  type Executable,
  type Fallback,
  type NeuronLayout,
  type OpDescription,
  type PrepareOptions,
  type RecordProfile,
  type RunOptions,
  type Support,
} from './backend/backend.js';
export { BoundProgram, type BoundProgramOptions } from './backend/bound-program.js';
export type { Dim } from './spec/dims.js';
export { dotProduct } from './numerics/dot-product.js';
export { dispatchProgram, type KernelBackend } from './fallback/dispatch.js';
export {
  decodeProgram,
  encodeJob,
  encodeProgram,
  recordWords,
  resolveDims,
  tensorWords,
  type DecodedRecord,
  type DecodedTensor,
} from './program/encode-program.js';
export {
  lowerDenseAttention,
  type LayerAttention,
  type AttentionLowering,
  type SequenceStates,
} from './lowering/attention.js';
export type { LayerFeedForward, FeedForwardLowering, NeuronPass } from './lowering/feed-forward.js';
export {
  checkKvDTypes,
  externalKv,
  type KvDTypes,
  type KvRows,
  type KvTensors,
  type KvView,
} from './lowering/kv-view.js';
export type {
  Attributes,
  AttributeSpec,
  AttributeValue,
  InputSpec,
  OpSpec,
  OutputSpec,
  Partition,
  RecordDTypes,
  RecordShapes,
  ReferenceCall,
  TensorView,
} from './spec/op-spec.js';
export { clearState, createStates, finishStates, mergeState, type PartialStates } from './numerics/partial-softmax.js';
export { maxExponent, maxPageExponent } from './attention/page-sampling.js';
export { PageSelection, SeenPages, type PageBox, type PageSelectionShape } from './attention/page-selection.js';
export { poolingKinds, type PoolingKind } from './ops/pool-rows.js';
export {
  arenaBufferIndex,
  scalarBufferIndex,
  type BufferUsage,
  type OpRecord,
  type Program,
  type ProgramBuffer,
  type Segment,
  type TensorRef,
} from './program/program.js';
export { hadamardSize } from './ops/hadamard.js';
export { ProgramBuilder, type OpInputs, type ProgramTensor } from './program/program-builder.js';
export { createReferenceBackend, type ReferenceBackendOptions } from './reference/backend.js';
export { runPointwise } from './reference/run-pointwise.js';
export { opcodeOf, opSpec, opSpecs, specOfOpcode } from './ops/registry.js';
export { numRopePairs, RowRotation, type RopeLayout } from './ops/rope.js';
export { fuseGatedMatmul } from './rewrite/fuse-gated-matmul.js';
export { fuseNormMatmul } from './rewrite/fuse-norm-matmul.js';
export { groupMatmuls } from './rewrite/group-matmuls.js';
export { rewriteProgram, type RewriteRule } from './rewrite/rewrite-program.js';
export { ropeFrequencies, type RopeOptions, type RopeScaling, type RopeTable } from './numerics/rope-frequencies.js';
export {
  checkScalars,
  createScalarBlock,
  shapeInStep,
  type ScalarBlock,
  type ScalarLayout,
  type ScalarSlot,
} from './program/scalars.js';
export { softmaxRow } from './ops/softmax.js';
export { selectTopK } from './numerics/select-top-k.js';
export { validateProgram } from './program/validate-program.js';
export { cacheDTypes, weightDTypes } from './spec/dtypes.js';
export { neuronGroup } from './ops/sparse-combine.js';
export { isNeuronActive } from './ops/active-neurons.js';
export { normMargin } from './ops/block-box-append.js';
export { sinksAndWindow, visibility } from './attention/visibility.js';
export { maxGlobals, subquadraticLandmarkRule, subquadraticTokenRule } from './ops/subquadratic-attention.js';
