export { inspectModel, loadEmbeddingModel, loadModel, openTokenizer } from './api.node.js';
export type { WeightOptions } from './load/adapt-weights.js';
export type { AdapterOption } from './load/adapters.js';
export { prepareChat, type ChatRequest, type ChatTurn, type ToolChoice } from './chat/prepare-chat.js';
export type { ChatPart, ChatReader } from './chat/chat-reader.js';
export type { ToolFormat } from './chat/tool-format.js';
export type { ChatMessage, ChatTemplate, ChatTool, ChatToolCall, RenderOptions } from './chat/template.js';
export type { Grammar, JsonSchema } from '@winnow/grammar';
export type { ModelTokenizer } from './create-api.js';
export type { ColdFiles } from './memory/cold-files.js';
export type {
  EmbeddingInput,
  EmbeddingLoadOptions,
  EmbeddingModel,
  EmbeddingProgress,
  EmbedOptions,
  TextEmbedding,
  TextOverflow,
} from './embedding/types.js';
export type {
  FeedForwardAccess,
  FeedForwardLayer,
  FeedForwardMatrix,
  FeedForwardTrace,
} from './sparsity/feed-forward.js';
export type { Eviction, LeastAttendedOptions } from './plan/key-masses.js';
export type { FeedForwardLayerMetrics, FeedForwardMetrics, FeedForwardTierMetrics } from './metrics/feed-forward.js';
export type { MemoryPlan, WeightTierBudgets } from './plan/memory-plan.js';
export type { CacheMetrics, EngineEvent, ModelMetrics, StepMetrics, TierMetrics } from './metrics/metrics.js';
export {
  formatPrometheus,
  formatPrometheusModels,
  type LabelledMetrics,
  type PrometheusMetrics,
} from './metrics/prometheus.js';
export type { SamplingOptions } from './generation/sampling-options.js';
export type { ModelInfo, TensorInfo } from './plan/model-info.js';
export type {
  AttentionTrace,
  FinishReason,
  GeneratedToken,
  GenerateOptions,
  Generation,
  GenerationResult,
  GenerationTimings,
  HostOptions,
  KvDTypes,
  KvTierOptions,
  LoadOptions,
  LoadProgress,
  LogitsOptions,
  Model,
  ModelLocation,
  OpenOptions,
  OverflowPolicy,
  Prompt,
  PromptProgress,
  SaveOptions,
  Session,
  TokenLogprob,
} from './types.js';
export type { SessionSize } from './sessions/file.js';
export type { SessionSource, SessionTarget } from './sessions/location.js';
export type { SidecarSource, SparseLoadOptions } from './sparsity/options.js';
export type { SparseWriterOptions } from './sparsity/sparse-weights.js';
export type { WeightTierOptions } from './weight-offload/options.js';
export type { WhenFull } from './runtime/when-full.js';
