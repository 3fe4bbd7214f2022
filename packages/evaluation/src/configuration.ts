/** The configurations to compare: a model with an attention policy and a KV cache dtype. */
import type { KvDTypes, Model, TraceOptions } from '@winnow/engine';
import { denseAttention, parseAttention, type AttentionSpec } from '@winnow/sparse-attention';
import { ArgumentError, type DType } from '@winnow/tensor';

/** The two phases that a policy is selected for. */
export type Phase = 'prefill' | 'decode';

/** The KV cache of a configuration. Prefixes are not shared: every run computes all of its tokens. */
export interface ConfiguredCache {
  readonly dtype: KvDTypes;
  readonly prefixSharing: false;
}

/** One configuration of the model. */
export interface Configuration {
  /** Label in tables: the policy, or `kv=q8_0`. */
  readonly label: string;
  readonly attention: AttentionSpec;
  readonly kvCache: ConfiguredCache;
  /**
   * Phases in which it differs from the base; both for the dense policy, whose row shows the rounding differences
   * between phases.
   */
  readonly phases: readonly Phase[];
}

/** Options of `loadModel` that `OpenModel` gets. The caller chooses everything else, and must choose the same each time. */
export interface OpenOptions {
  readonly attention: AttentionSpec;
  readonly kvCache: ConfiguredCache;
  /** Minimum context length in tokens. */
  readonly context: number;
  readonly trace?: TraceOptions;
  /** Threads or backend, for comparing them. Default: the caller's. */
  readonly threads?: number;
  readonly backend?: 'reference';
}

/** Loads the model under evaluation; it is disposed of after use. */
export type OpenModel = (options: OpenOptions) => Promise<Model>;

const f32: ConfiguredCache = { dtype: { keys: 'f32', values: 'f32' }, prefixSharing: false };

/** The configuration that others are compared with: dense attention, f32 cache. */
export const baseConfiguration: Configuration = {
  label: 'dense',
  attention: denseAttention,
  kvCache: f32,
  phases: ['prefill', 'decode'],
};

/**
 * A configuration per policy, then one per cache dtype (`f16`, or `q8_0/q4_0` for keys and values). @throws
 * {ArgumentError}
 */
export function createConfigurations(policies: readonly string[], kvDTypes: readonly KvDTypes[]): Configuration[] {
  const configurations = policies.map((text): Configuration => {
    const attention = parseAttention(text);
    const changes = (phase: Phase): boolean =>
      attention[phase].kind !== 'dense' ||
      attention.layers.some((layer) => layer.phase === phase || layer.phase === 'both');
    const phases = (['prefill', 'decode'] as const).filter(changes);
    return {
      label: text.trim(),
      attention,
      kvCache: f32,
      phases: phases.length === 0 ? ['prefill', 'decode'] : phases,
    };
  });
  for (const dtype of kvDTypes) {
    const { keys, values } = dtype;
    const kvCache = { dtype, prefixSharing: false } as const;
    const label = `kv=${keys === values ? keys : `${keys}/${values}`}`;
    configurations.push({ label, attention: denseAttention, kvCache, phases: ['prefill'] });
  }
  const labels = configurations.map(({ label }) => label);
  const twice = labels.find((label, index) => labels.indexOf(label) !== index);
  if (twice !== undefined) {
    throw new ArgumentError({ argument: 'policies', expected: 'distinct configurations', actual: `${twice} twice` });
  }
  return configurations;
}

/** The model request of a configuration. */
export function openOptionsOf({ attention, kvCache }: Configuration, context: number): OpenOptions {
  return { attention, kvCache, context };
}

/** Cache dtypes worth a row of the table for this head dimension. */
export function defaultKvDTypes(headDim: number): KvDTypes[] {
  const dtypes: DType[] = headDim % 32 === 0 ? ['f16', 'q8_0', 'q4_0'] : ['f16'];
  return dtypes.map((dtype) => ({ keys: dtype, values: dtype }));
}
