/**
 * LFM 2 with experts: `lfm2.ts`, where all but the first layers have a mixture of experts, selected by biased sigmoid
 * scores, as FFN.
 */
import type { Architecture } from '../program/architecture.js';
import { describeLfm2 } from './lfm2.js';

export const lfm2moe: Architecture = {
  name: 'lfm2moe',
  models: 'LFM 2 with experts',
  ggufNames: ['lfm2moe'],
  hubNames: ['lfm2_moe'],
  hubClass: 'Lfm2MoeForCausalLM',
  preTokenizer: 'lfm2',
  describe: describeLfm2,
};
