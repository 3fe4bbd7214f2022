export {
  baseConfiguration,
  createConfigurations,
  defaultKvDTypes,
  openOptionsOf,
  type Configuration,
  type ConfiguredCache,
  type OpenModel,
  type OpenOptions,
  type Phase,
} from './configuration.js';
export { candidatePolicies, defaultPolicies, uniformPolicies } from './policies.js';
export {
  evaluateModel,
  evaluationParts,
  type AttentionReport,
  type ConfigurationReport,
  type EvaluateOptions,
  type EvaluationPart,
  type EvaluationReport,
  type EvaluationShard,
} from './suite/evaluate.js';
export { evaluationShards, mergeEvaluations } from './suite/shards.js';
export { measureAttention, meanQuality, type LayerQuality, type QualityMeans } from './attention/attention-quality.js';
export {
  captureAttention,
  type AttentionCapture,
  type CaptureOptions,
  type CaptureResult,
} from './attention/capture.js';
export { createCachedMaps, type CachedMap } from './attention/cached-map.js';
export { measureHeavySets, type HeavySetReport } from './attention/heavy-sets.js';
export {
  measureCertificates,
  type CertificateReport,
  type CertificatesAtLength,
  type Distribution,
} from './attention/certificates.js';
export { coverageErrors, measureCoverage, type CoverageReport, type ErrorBoundCheck } from './attention/coverage.js';
export { syntheticCaptures } from './attention/synthetic.js';
export { createVisitMaps, type VisitMap, type VisitMapOptions } from './attention/visit-map.js';
export { bytesRead, type TrafficOptions } from './attention/traffic.js';
export {
  backendBound,
  checkDeterminism,
  type DeterminismOptions,
  type DeterminismReport,
} from './suite/determinism.js';
export {
  compareRows,
  DivergenceCollector,
  divergenceClass,
  divergencePercentiles,
  type DivergenceClass,
  type DivergenceReport,
  type PositionBucket,
  type RowDivergence,
} from './logits/divergence.js';
export {
  compareForced,
  createBaseRows,
  maxBaseBytes,
  type BaseRows,
  type ForcedOptions,
} from './logits/forced-decoding.js';
export { h2oPolicy, measureH2oGrid, type H2oGridCell, type H2oGridOptions } from './suite/h2o-grid.js';
export type { Estimate } from './logits/statistics.js';
export { densityOf } from './attention/density.js';
export { formatDivergence, formatEvaluation } from './report/text.js';
export { formatTuning } from './report/tune-text.js';
export { evaluateSparse, type EvaluateSparseOptions, type SparseEvaluation } from './sparse/evaluate-sparse.js';
export {
  evaluateSparseEmbeddings,
  type EvaluateSparseEmbeddingsOptions,
  type SparseEmbeddingsEvaluation,
} from './sparse/evaluate-sparse-embeddings.js';
export { measureSpeed, type SpeedOptions, type SpeedPoint } from './suite/speed.js';
export { createRecallCase } from './tasks/recall-case.js';
export { runTasks, type TaskOptions, type TaskScore } from './tasks/run-tasks.js';
export {
  taskNames,
  type RankQuestion,
  type RecallCase,
  type RecallCaseOptions,
  type RecallQuestion,
  type TaskForm,
  type TaskName,
} from './tasks/task-types.js';
export { defaultText } from './text/default-text.js';
export { pearson, spearman } from './logits/correlation.js';
export {
  evaluateReranking,
  formatReranking,
  type RerankingEvaluationOptions,
  type RerankingReport,
} from './tasks/reranking.js';
export { evaluateSts, formatSts, parseSentencePairs, type SentencePair, type StsReport } from './tasks/sts.js';
export { tuneAttention } from './tune/tune-attention.js';
export type { TuneCheckpoint } from './tune/checkpoint.js';
export type {
  CandidateReport,
  LayerChoice,
  PolicyPoint,
  TuneCosts,
  TuneOptions,
  TuneReport,
  TuneText,
  UniformComparison,
} from './tune/options.js';
