export type {
  Architecture,
  DecoderArchitecture,
  EmbedderDescription,
  EncoderArchitecture,
  ModelDescription,
  ModelFile,
  RerankerDescription,
  ImageMarks,
  VisionGrid,
  ImageSize,
  ImageStep,
  RowGrid,
  VisionPart,
  VisionProgramOptions,
} from './program/architecture.js';
export { imageParts, mmprojName, type ImageParts, type MmprojFile } from './architectures/mmproj.js';
export {
  ffnDimOf,
  headDimsOf,
  kvHeadsOf,
  kvLayerOf,
  type DecoderConfig,
  type ExpertConfig,
  type HeadSizes,
  type KvHeads,
  type RopeConfig,
} from './program/config.js';
export {
  imageAnglesName,
  imagePositionsSlot,
  imageRowsName,
  imageRowsSlot,
  kvBufferNames,
  ropeFrequenciesName,
  rotaryRowsSlot,
  slotPositionsName,
  stateBufferName,
  tokenTypesSlot,
  storedHeadDim,
  type AttentionRequest,
  type DecoderProgramOptions,
  type KvCacheShape,
} from './program/decoder-program.js';
export { rotaryLengthsOf, type RotaryLengths } from './program/rotary-lengths.js';
export {
  expertMatrices,
  expertMatrixName,
  type ExpertMatrix,
  type ExpertPass,
  type ExpertPlacement,
  type LayerExperts,
} from './program/expert-placement.js';
export { addTransposedMatrices, downRowsName, feedForwardNames } from './blocks/feed-forward.js';
export { gemma3nCutoffs } from './architectures/gemma3n-settings.js';
export { normalCdf } from './architectures/normal-quantile.js';
export { factorsInGguf } from './program/tensors.js';
export { falconH1FactorNames, falconH1Factors, type FalconH1Factors } from './architectures/falcon-h1-factors.js';
export {
  embeddingBlockSize,
  tokenOutputs,
  type EmbeddingProgramOptions,
  type Pooling,
} from './program/embedding-program.js';
export { Fields } from './file/fields.js';
export {
  checkQuantizeType,
  quantizedDType,
  mainDType,
  quantizeTypes,
  quantizeWeights,
  type KeptWeight,
  type QuantizeOptions,
  type QuantizeType,
} from './file/quantize.js';
export { addAdapters, type ScaledLora } from './lora/add-adapters.js';
export { readLora, type Lora, type LoraFile, type LoraPart } from './lora/lora.js';
export { changedRowsView } from './file/changed-rows-view.js';
export { gatheredRowsView, reshapedView } from './file/gathered-views.js';
export { reencodedView } from './file/reencoded-view.js';
export {
  architectureOf,
  architectures,
  describeEmbedder,
  describeModel,
  hasRankingHead,
  rankPooling,
  storedPooling,
} from './registry.js';
export { visionPatchesName, visionPrefix } from './vision/tower.js';
export { describeReranker } from './reranker.js';
export { plannedStore, type PlannedStore } from './file/planned-store.js';
export { rotaryLayersOf } from './settings/hub-settings.js';
export {
  colbertStore,
  openDenseLayers,
  openTokenLayers,
  tokenLayerFiles,
  type DenseLayers,
  type LayerFile,
  type LayerFiles,
} from './settings/encoder-settings.js';
export { hubRopeFields } from './settings/rope-settings.js';
export { textPartOf, type TextPart } from './settings/text-part.js';
export { mappedView, rowsView, stackedView, transposedView } from './file/stored-views.js';
export {
  loadWeight,
  maxPieceBytes,
  streamWeight,
  type LoadWeightOptions,
  type RequestedStore,
  type Weight,
  type WeightRequest,
  type WritePiece,
} from './file/weights.js';
