export { activationFunction, activationKinds, type ActivationKind } from './activation-functions.js';
export {
  checkCopy,
  copyBytes,
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
} from './backend.js';
export { BoundProgram, type BoundProgramOptions } from './bound-program.js';
export type { Dim } from './dims.js';
export { dotProduct } from './dot-product.js';
export { dispatchProgram, type KernelBackend } from './fallback/dispatch.js';
export { decodeProgram, encodeProgram, resolveDims, type DecodedRecord, type DecodedTensor } from './encode-program.js';
export {
  lowerDenseAttention,
  type LayerAttention,
  type AttentionLowering,
  type SequenceStates,
} from './attention-lowering.js';
export type { LayerFeedForward, FeedForwardLowering, NeuronPass } from './feed-forward-lowering.js';
export { externalKv, type KvRows, type KvTensors, type KvView } from './kv-view.js';
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
} from './op-spec.js';
export { clearState, createStates, finishStates, mergeState, type PartialStates } from './partial-softmax.js';
export { PageSelection, SeenPages, type PageBox, type PageSelectionShape } from './page-selection.js';
export { poolingKinds, type PoolingKind } from './pool-rows.js';
export {
  arenaBufferIndex,
  scalarBufferIndex,
  type BufferUsage,
  type OpRecord,
  type Program,
  type ProgramBuffer,
  type Segment,
  type TensorRef,
} from './program.js';
export { hadamardSize } from './hadamard.js';
export { ProgramBuilder, type OpInputs, type ProgramTensor } from './program-builder.js';
export { createReferenceBackend, type ReferenceBackendOptions } from './reference/backend.js';
export { runPointwise } from './reference/run-pointwise.js';
export { opcodeOf, opSpec, opSpecs, specOfOpcode } from './registry.js';
export { RowRotation, type RopeLayout } from './rope.js';
export { fuseGatedMatmul } from './rewrite/fuse-gated-matmul.js';
export { fuseNormMatmul } from './rewrite/fuse-norm-matmul.js';
export { groupMatmuls } from './rewrite/group-matmuls.js';
export { rewriteProgram, type RewriteRule } from './rewrite/rewrite-program.js';
export { ropeFrequencies, type RopeOptions, type RopeScaling, type RopeTable } from './rope-frequencies.js';
export { checkScalars, createScalarBlock, type ScalarBlock, type ScalarLayout, type ScalarSlot } from './scalars.js';
export { softmaxRow } from './softmax.js';
export { selectTopK } from './top-k.js';
export { validateProgram } from './validate-program.js';
export { cacheDTypes, weightDTypes } from './dtypes.js';
export { neuronGroup } from './sparse-combine.js';
export { normMargin } from './block-box-append.js';
export { maxGlobals, subquadraticLandmarkRule, subquadraticTokenRule } from './subquadratic-attention.js';
