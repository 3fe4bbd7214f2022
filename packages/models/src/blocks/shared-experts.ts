/**
 * Mixtures of experts as in DeepSeek V2 and V3 (arXiv:2405.04434, arXiv:2412.19437): dense first layers, shared experts
 * without a gate, and a bias of the scores that affects only the selection.
 */
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig, ExpertConfig } from '../program/config.js';
import { expertsFromGguf, expertsFromHub, type HubExpertNames, type Routing } from './experts.js';

export const sharedExpertNames: HubExpertNames = {
  shared: 'shared_experts',
  scoreBias: 'gate.e_score_correction_bias',
};

/**
 * @param routing defaults of the settings
 * @param numDense default of the number of dense first layers in config.json
 * @throws {FormatError} for invalid settings, and for experts that are selected in groups
 */
export function sharedExpertsOf(
  file: ModelFile,
  config: DecoderConfig,
  routing: Routing,
  numDense: number,
): ExpertConfig {
  if (file.format === 'gguf') return expertsFromGguf(file, config, routing, 'counted');
  const first = file.fields.integer('first_k_dense_replace', numDense);
  return expertsFromHub(file, config, {
    ...routing,
    count: 'n_routed_experts',
    shared: 'counted',
    scale: 'routed_scaling_factor',
    isExpertLayer: (layer) => layer >= first,
  });
}
