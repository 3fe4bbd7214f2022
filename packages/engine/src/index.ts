export { inspectModel, loadEmbeddingModel, loadModel, openTokenizer } from './api.js';
export type { WeightOptions } from './adapt-weights.js';
export type { AdapterOption } from './adapters.js';
export { prepareChat, type ChatRequest, type ChatTurn, type ToolChoice } from './chat/prepare-chat.js';
export type { ChatPart, ChatReader } from './chat/chat-reader.js';
export type { ToolFormat } from './chat/tool-format.js';
export type { ChatMessage, ChatTemplate, ChatTool, ChatToolCall, RenderOptions } from './chat-template.js';
export type { Grammar, JsonSchema } from '@winnow/grammar';
export type { ModelTokenizer } from './create-api.js';
export type { ColdFiles } from './kv-tiers-files.js';
export type {
  EmbeddingInput,
  EmbeddingLoadOptions,
  EmbeddingModel,
  EmbeddingProgress,
  EmbedOptions,
  TextEmbedding,
  TextOverflow,
} from './embed-types.js';
export type { FeedForwardAccess, FeedForwardLayer, FeedForwardMatrix, FeedForwardTrace } from './feed-forward-types.js';
export type { Eviction, LeastAttendedOptions } from './key-masses.js';
export type { FeedForwardLayerMetrics, FeedForwardMetrics, FeedForwardTierMetrics } from './feed-forward-metrics.js';
export type { MemoryPlan, WeightTierBudgets } from './memory-plan.js';
export type { CacheMetrics, EngineEvent, ModelMetrics, StepMetrics, TierMetrics } from './metrics.js';
export {
  formatPrometheus,
  formatPrometheusModels,
  type LabelledMetrics,
  type PrometheusMetrics,
} from './prometheus.js';
export type { SamplingOptions } from './sampling-options.js';
export type { ModelInfo, TensorInfo } from './model-info.js';
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
export type { SessionSize } from './session-file.js';
export type { SessionSource, SessionTarget } from './session-location.js';
export type { SidecarSource, SparseLoadOptions } from './sparse-option.js';
export type { SparseWriterOptions } from './sparse-weights.js';
export type { WeightTierOptions } from './weight-tiers-options.js';
export type { WhenFull } from './when-full.js';
