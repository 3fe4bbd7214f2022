/**
 * Mixtures of experts as in DeepSeek V2 and V3 (arXiv:2405.04434, arXiv:2412.19437): dense first layers, shared experts
 * without gates, and a bias of the scores that affects only the selection.
 */
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig, ExpertConfig } from '../program/config.js';
import { expertsFromGguf, expertsFromHub, type GroupScore, type HubExpertNames, type Routing } from './experts.js';

export const sharedExpertNames: HubExpertNames = {
  shared: 'mlp.shared_experts',
  scoreBias: 'gate.e_score_correction_bias',
};

/**
 * @param routing defaults of the settings
 * @param numDense default of the number of dense first layers in config.json
 * @param groupScore how groups of experts are ranked; experts are selected from the best groups only
 * @throws {FormatError} for invalid settings
 */
export function sharedExpertsOf(
  file: ModelFile,
  config: DecoderConfig,
  routing: Routing,
  numDense: number,
  groupScore?: GroupScore,
): ExpertConfig {
  if (file.format === 'gguf') return expertsFromGguf(file, config, routing, 'counted', groupScore);
  const first = file.fields.integer('first_k_dense_replace', numDense);
  return expertsFromHub(file, config, {
    ...routing,
    count: 'n_routed_experts',
    shared: 'counted',
    scale: 'routed_scaling_factor',
    groupScore,
    isExpertLayer: (layer) => layer >= first,
  });
}
