export type {
  InferenceBackend,
  InferenceFinishReason,
  InferenceMetrics,
  InferenceOptions,
  InferencePrompt,
  InferenceResult,
  InferenceStream,
  InferenceToken,
} from './contract.js';
export { createInferenceBackend, type InferenceBackendOptions } from './create-inference-backend.js';
export type { TextBackend, TextPiece, TextResult, TextStream } from './text-backend.js';
export { createOpenAiBackend, UpstreamError, type OpenAiBackendOptions } from './create-openai-backend.js';
export { createFailoverBackend, type Failover, type FailoverOptions } from './create-failover-backend.js';
