/// <reference lib="esnext.disposable" preserve="true" />
export {
  inspectModel,
  loadEmbeddingModel,
  loadModel,
  loadReranker,
  openPromptStore,
  openTokenizer,
  weightsHash,
} from './api.js';
export type { PromptStore, PromptStoreOptions, PromptStoreStatistics } from './runtime/prompt-cache/store.js';
export type { WeightOptions } from './load/adapt-weights.js';
export type { AdapterOption, LoraOptions } from './load/adapters.js';
export { checkTextLength } from './chat/encode-prompt.js';
export {
  hasReasoning,
  prepareChat,
  type ChatRequest,
  type ChatTurn,
  type PrepareOptions,
  type ToolChoice,
} from './chat/prepare-chat.js';
export type {
  ChatPart,
  ChatReader,
  ReasoningPart,
  TextPart,
  ToolCallDelta,
  ToolCallPart,
  ToolCallStart,
} from './chat/answers/chat-part.js';
export { runSliced } from './runtime/compilation.js';
export type { ToolFormat } from './chat/formats/tool-format.js';
export type { ChatMessage, ChatTemplate, ChatTool, ChatToolCall, RenderOptions } from './chat/template.js';
export type { Grammar, JsonSchema } from '@winnow/grammar';
export type { ModelTokenizer } from './load/engine.js';
export type { ColdFiles } from './memory/cold-files.js';
export type { EmbeddingProgress } from './embedding/run.js';
export type { EmbeddingInput, TextOverflow } from './embedding/text.js';
export type { EmbeddingLoadOptions, HostOptions, LoadOptions, RerankerLoadOptions } from './load/options.js';
export type { RankedDocument, RerankOptions, RerankProgress, Reranker } from './embedding/reranker.js';
export type { ImageInput } from './images/image-encoder.js';
export type {
  EmbeddingModel,
  EmbedImageOptions,
  EmbedOptions,
  EmbedTextsOptions,
  TextEmbedding,
} from './embedding/model.js';
export { lexicalScore, maxSim } from './embedding/scores.js';
export type { SparseVector, TokenOutput } from './embedding/token-outputs.js';
export type {
  FeedForwardAccess,
  FeedForwardLayer,
  FeedForwardMatrix,
  FeedForwardTrace,
} from './sparsity/feed-forward.js';
export type { Eviction, LeastAttendedOptions } from './plan/eviction.js';
export type { VisitedKeysMetrics, VisitedLayerMetrics } from './metrics/visited-keys.js';
export type { FeedForwardLayerMetrics, FeedForwardMetrics, FeedForwardTierMetrics } from './metrics/feed-forward.js';
export type { MemoryPlan, WeightTierBudgets } from './plan/memory-plan.js';
export type {
  CacheMetrics,
  ModelMetrics,
  PromptCacheMetrics,
  StepMetrics,
  TierMetrics,
} from './metrics/model-metrics.js';
export type { EngineEvent } from './metrics/events.js';
export {
  formatPrometheus,
  formatPrometheusModels,
  type LabeledMetrics,
  type PrometheusMetrics,
} from './metrics/prometheus.js';
export type { LogitBias } from './generation/penalties.js';
export type { SpanLimit } from './chat/span-limit.js';
export type { Speculative } from './plan/speculative.js';
export type { DraftModel, DraftModelOptions, DraftSession } from './generation/draft-model.js';
export type { SpeculationMetrics } from './metrics/speculation.js';
export type { SamplingOptions } from './generation/sampling-options.js';
export type { ModelInfo, TensorInfo } from './load/inspect-model.js';
export type { AttentionTrace } from './plan/attention-trace.js';
export type {
  FinishReason,
  GeneratedToken,
  GenerateOptions,
  Generation,
  GenerationResult,
  GenerationTimings,
  PromptProgress,
  TokenLogprob,
} from './generation/generation.js';
export type { KvDTypes } from '@winnow/ops';
export { policyFileOf, type PolicySource } from './plan/auto-attention.js';
export type { KvCacheOptions, WhenFull } from './plan/options.js';
export type { KvOffloadOptions } from './kv-offload/plan.js';
export type { TraceOptions } from './memory/step-outputs.js';
export type { LoadProgress } from './memory/load-buffers.js';
export type { LogitsOptions } from './generation/logprobs.js';
export type { Model, TokenizeOptions } from './sessions/model.js';
export type { FolderFile, ModelLocation, OpenOptions } from './load/location.js';
export type { OverflowPolicy } from './generation/overflow.js';
export type { ImagePrompt, Prompt, TextPrompt } from './chat/encode-prompt.js';
export type { RestoreOptions, SaveOptions, Session, SessionOptions } from './sessions/session.js';
export type { SessionSize } from './sessions/file.js';
export type { SessionSource, SessionTarget } from './sessions/location.js';
export type { FileSource, SidecarSource, SparsityOptions } from './sparsity/options.js';
export type { MemoryOptions } from './weight-offload/options.js';
