/**
 * Qwen 3.5 with experts: `qwen35.ts` with a mixture of experts as FFN, whose routing weights are normalized, plus a gated
 * shared expert.
 */
import type { Architecture } from '../program/architecture.js';
import { describeQwen35 } from './qwen35.js';

export const qwen35moe: Architecture = {
  name: 'qwen35moe',
  models: 'Qwen 3.5 with experts, also the language model of multimodal checkpoints',
  ggufNames: ['qwen35moe'],
  hubNames: ['qwen3_5_moe_text', 'qwen3_5_moe'],
  hubClass: 'Qwen3_5MoeForCausalLM',
  preTokenizer: 'qwen35',
  describe: (file) => describeQwen35(file, { architecture: 'qwen35moe', hasExperts: true, isFusedByHead: false }),
};
