export type {
  Architecture,
  DecoderArchitecture,
  EmbedderDescription,
  EncoderArchitecture,
  ModelDescription,
  ModelFile,
} from './architecture.js';
export type { DecoderConfig, ExpertConfig, RopeConfig } from './decoder/config.js';
export {
  kvBufferNames,
  ropeFrequenciesName,
  slotPositionsName,
  stateBufferName,
  storedHeadDim,
  type AttentionRequest,
  type DecoderProgramOptions,
  type KvCacheShape,
} from './decoder/program.js';
export {
  expertMatrixName,
  type ExpertMatrix,
  type ExpertPass,
  type ExpertPlacement,
  type LayerExperts,
} from './expert-placement.js';
export { addTransposedMatrices, downRowsName, feedForwardNames } from './feed-forward.js';
export { embeddingBlockSize, type EmbeddingProgramOptions, type Pooling } from './embedding-program.js';
export { Fields } from './fields.js';
export {
  checkQuantizeType,
  quantizedDType,
  quantizeTypes,
  quantizeWeights,
  type KeptWeight,
  type QuantizeOptions,
} from './quantize.js';
export { addAdapters, type ScaledLora } from './add-adapters.js';
export { readLora, type Lora, type LoraFile, type LoraPart } from './lora.js';
export { reencodedView } from './reencoded-view.js';
export { architectures, describeEmbedder, describeModel, storedPooling } from './registry.js';
export { plannedStore, type PlannedStore } from './planned-store.js';
export { rowsView, stackedView, transposedView } from './stored-views.js';
export {
  loadWeight,
  maxPieceBytes,
  streamWeight,
  type LoadWeightOptions,
  type RequestedStore,
  type Weight,
  type WeightRequest,
  type WritePiece,
} from './weights.js';
