/** Visited by dense pairs, as it was measured on captured attention. */
import type { Phase } from '../configuration.js';
import type { ConfigurationReport } from '../evaluate.js';

/** Undefined where attention was not measured and the configuration is not dense. */
export function densityOf({ attention, label }: ConfigurationReport, phase: Phase): number | undefined {
  const found = attention.find(({ phases }) => phases.includes(phase));
  if (found !== undefined) return found.captured.density;
  return label === 'dense' || label.startsWith('kv=') ? 1 : undefined;
}
