export {
  attentionFromOptions,
  checkAttention,
  denseAttention,
  formatAttention,
  parseAttention,
} from './policy/attention-spec.js';
export type { AttentionOptions } from './policy/attention-spec.js';
export { supportsPhase } from './policy/policy-fields.js';
export { formatPolicy, parsePolicy } from './policy/policy-text.js';
export type {
  AttentionPhase,
  AttentionPolicy,
  AttentionSpec,
  DensePolicy,
  H2oPrefillPolicy,
  LayerOverride,
  LayerPolicy,
  OracleTopKPolicy,
  PageTopKPolicy,
  PolicyKind,
  SparqPolicy,
  StreamingPolicy,
  SubquadraticPolicy,
} from './policy/policy-types.js';
export { checkPolicy } from './policy/policy-values.js';
export { resolvePolicy } from './policy/resolve-policy.js';
