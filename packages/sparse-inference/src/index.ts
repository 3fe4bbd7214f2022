/// <reference lib="esnext.disposable" preserve="true" />
export {
  plainSource,
  type CalibrationLayer,
  type CalibrationSource,
  type FeedForwardTrace,
  type PlainSourceOptions,
} from './calibration/calibration-source.js';
export { measureSidecar, type MeasureSidecarOptions } from './calibration/measure-sidecar.js';
export { calibrate } from './calibration/calibrate.js';
export type { CheckpointStore } from './calibration/checkpoint.js';
export type { CalibrateOptions, CalibrationPhase, CalibrationProgress } from './calibration/options.js';
export { FeedForwardBlock, type BlockValues, type FeedForwardBlockOptions } from './blocks/feed-forward-block.js';
export { columnNorms, type FeedForwardShape, type FeedForwardWeights } from './blocks/feed-forward-weights.js';
export { NeuronPredictor, type ActiveNeurons, type NeuronPredictorOptions } from './predictors/neuron-predictor.js';
export type { PredictorWeight } from './lowering/low-rank-scores.js';
export { classifyNeurons, type NeuronClasses } from './sidecar/neuron-classes.js';
export { readSidecar, type ReadSidecarOptions, type SidecarFile } from './sidecar/read-sidecar.js';
export { sidecarContent, type SidecarContent } from './sidecar/sidecar-content.js';
export {
  predictorKinds,
  type GateThresholdTables,
  type InputThresholdTables,
  type LayerReport,
  type NeuronRows,
  type LowRankEstimate,
  type LowRankProductTables,
  type LowRankTables,
  type PredictedLayer,
  type PredictorKind,
  type PredictorTables,
  type Sidecar,
  type SidecarConfig,
  type SparseLayer,
  type StoredMatrix,
} from './sidecar/sidecar.js';
export type { SidecarTensor } from './sidecar/stored-matrix.js';
export {
  createFeedForwardLowering,
  predictorWeights,
  type FeedForwardLoweringOptions,
  type SparseFeedForwardLowering,
} from './lowering/feed-forward-lowering.js';
export type { ActiveTensors } from './blocks/block-lowering.js';
export {
  breakEvenOf,
  maxRatioOf,
  runsDense,
  sparseMatrices,
  type FeedForwardMatrix,
  type MaxActiveRatio,
} from './lowering/sparse-matrices.js';
export {
  createNeuronCache,
  type NeuronCache,
  type NeuronCacheOptions,
  type NeuronCacheStatistics,
} from './cache/neuron-cache.js';
export {
  neuronItemBytes,
  type NeuronItemBytes,
  type ColdEncoding,
  type NeuronLayer,
  type NeuronPiece,
  type WarmEncoding,
} from './cache/item-layout.js';
export { neuronStagingBytes, type NeuronReadOptions } from './cache/staging.js';
export { NeuronLoadError } from './cache/load-error.js';
export {
  planNeuronTiers,
  type NeuronTierOptions,
  type NeuronTierPlan,
  type PlannedLayer,
  type PlannedLayerInput,
} from './cache/plan-tiers.js';
export type { NeuronLayerStatistics } from './cache/layer/counters.js';
export type { SlotMemory } from './cache/slot-loads.js';
