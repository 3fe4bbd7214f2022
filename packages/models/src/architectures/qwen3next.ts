/**
 * Qwen3-Next: Qwen 3.5 with experts, whose recurrent layers have two fused projections: q, k, v and the gate of each key head,
 * and beta and alpha of each key head. The rest: `qwen35.ts`.
 */
import type { Architecture } from '../program/architecture.js';
import { describeQwen35 } from './qwen35.js';

export const qwen3next: Architecture = {
  name: 'qwen3next',
  models: 'Qwen3-Next 80B-A3B',
  limits: ['Multi-token prediction layers (`mtp`) are ignored.'],
  ggufNames: ['qwen3next'],
  hubNames: ['qwen3_next'],
  hubClass: 'Qwen3NextForCausalLM',
  preTokenizer: 'qwen2',
  describe: (file) => describeQwen35(file, { architecture: 'qwen3next', hasExperts: true, isFusedByHead: true }),
};
