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
