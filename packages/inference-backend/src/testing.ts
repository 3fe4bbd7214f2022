export { inferenceChecks, type InferenceCheck } from './checks.js';
export { describeInferenceBackend, type DescribeInferenceBackendOptions } from './describe-inference-backend.js';
