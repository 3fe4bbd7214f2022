/**
 * The fields of each kind of policy: names in text and in JSON, ranges, defaults. Used for parsing, formatting and
 * checking.
 */
import type { AttentionPhase, AttentionPolicy, PolicyKind } from './kinds.js';

export type FieldValue = number | boolean | string | readonly number[];
export type Given = Readonly<Record<string, FieldValue | undefined>>;

export interface PolicyField {
  /** Name in typed objects and JSON. */
  readonly property: string;
  /** Name in text. */
  readonly key: string;
  readonly type: 'integer' | 'number' | 'boolean' | 'choice' | 'positions';
  readonly min?: number;
  /** Exclusive lower bound of numbers, instead of `min`. */
  readonly above?: number;
  /** Exclusive upper bound of numbers. */
  readonly below?: number;
  /** The words of a choice; for other types, words that are accepted besides numbers. */
  readonly words?: readonly string[];
  /** The default, which may depend on the given fields. */
  readonly fallback: (given: Given) => FieldValue;
}

export interface PolicySchema {
  readonly kind: PolicyKind;
  readonly aliases: readonly string[];
  readonly phases: readonly AttentionPhase[];
  readonly fields: readonly PolicyField[];
  /** Reports what is wrong with a combination of valid values. */
  readonly check?: (policy: AttentionPolicy) => CombinationProblem | undefined;
}

export interface CombinationProblem {
  readonly key: string;
  readonly expected: string;
  readonly actual: string;
}

/** Landmark defaults were chosen by measured quality, see docs/benchmarks/sparse-attention.md. */
const defaultLandmarks = 'compat';
const defaultLandmarkBias = 'log-count';

const always = (value: FieldValue) => (): FieldValue => value;
const integer = (property: string, key: string, min: number, value: number): PolicyField => ({
  property,
  key,
  type: 'integer',
  min,
  fallback: always(value),
});
const boolean = (property: string, key: string, value: boolean): PolicyField => ({
  property,
  key,
  type: 'boolean',
  fallback: always(value),
});
const choice = (property: string, key: string, words: readonly string[], value: string): PolicyField => ({
  property,
  key,
  type: 'choice',
  words,
  fallback: always(value),
});
/** Delta correction of prefill. */
const delta = integer('delta', 'delta', 0, 0);
const both: readonly AttentionPhase[] = ['prefill', 'decode'];

export const policySchemas: readonly PolicySchema[] = [
  { kind: 'dense', aliases: [], phases: both, fields: [] },
  {
    kind: 'subquadratic',
    aliases: [],
    phases: both,
    fields: [
      integer('window', 'window', 0, 128),
      integer('blockSize', 'block', 1, 64),
      { property: 'globals', key: 'globals', type: 'positions', words: ['none'], fallback: always([0]) },
      boolean('logStride', 'logstride', true),
      choice('landmarks', 'landmarks', ['compat', 'outside-window', 'off'], defaultLandmarks),
      {
        ...choice('landmarkBias', 'bias', ['none', 'log-count'], defaultLandmarkBias),
        fallback: ({ landmarks }) => (landmarks === 'off' ? 'none' : defaultLandmarkBias),
      },
      delta,
    ],
    check(policy) {
      if (policy.kind !== 'subquadratic' || policy.landmarks !== 'off' || policy.landmarkBias === 'none')
        return undefined;
      return { key: 'bias', expected: 'none where landmarks=off', actual: policy.landmarkBias };
    },
  },
  {
    kind: 'sparq',
    aliases: [],
    phases: ['decode'],
    fields: [
      integer('rank', 'rank', 1, 32),
      integer('topK', 'topk', 1, 128),
      {
        ...integer('local', 'local', 0, 32),
        fallback: ({ topK = 128 }) => (typeof topK === 'number' ? Math.floor(topK / 4) : 0),
      },
      boolean('meanValue', 'mean', true),
      boolean('temperature', 'temperature', true),
      boolean('grouped', 'grouped', true),
      choice('keyLayout', 'layout', ['row', 'both'], 'row'),
    ],
    check(policy) {
      if (policy.kind !== 'sparq' || policy.local <= policy.topK) return undefined;
      return {
        key: 'local',
        expected: `at most topk=${policy.topK}, which includes it`,
        actual: String(policy.local),
      };
    },
  },
  {
    kind: 'h2o-prefill',
    aliases: ['h2o'],
    phases: ['prefill'],
    fields: [
      integer('chunk', 'chunk', 1, 1024),
      integer('local', 'local', 0, 256),
      integer('heavy', 'heavy', 0, 256),
      integer('sinks', 'sinks', 0, 0),
      delta,
    ],
  },
  {
    kind: 'streaming',
    aliases: [],
    phases: both,
    fields: [integer('window', 'window', 1, 4096), integer('sinks', 'sinks', 0, 4), delta],
  },
  {
    kind: 'page-topk',
    aliases: [],
    phases: ['decode'],
    fields: [
      {
        ...integer('budget', 'budget', 0, 32),
        words: ['all'],
        fallback: ({ epsilon }) => (epsilon === undefined ? 32 : 'all'),
      },
      { property: 'epsilon', key: 'epsilon', type: 'number', min: 0, below: 1, fallback: always(0) },
      integer('sinks', 'sinks', 0, 4),
      integer('window', 'window', 1, 128),
      integer('pageSize', 'page', 1, 64),
    ],
  },
  {
    kind: 'verified-topk',
    aliases: [],
    phases: ['decode'],
    fields: [
      { property: 'epsilon', key: 'epsilon', type: 'number', above: 0, below: 1, fallback: always(0.05) },
      // above 0.2, one direction is no longer the worst case of a normal error
      { property: 'delta', key: 'delta', type: 'number', above: 0, below: 0.2, fallback: always(0.05) },
      integer('budget', 'budget', 0, 4),
      integer('sinks', 'sinks', 0, 4),
      integer('window', 'window', 1, 128),
      integer('pageSize', 'page', 1, 16),
      integer('sample', 'sample', 1, 128),
      integer('seed', 'seed', 0, 0),
    ],
  },
  { kind: 'oracle-topk', aliases: [], phases: both, fields: [integer('k', 'k', 1, 128)] },
];

/** The schema of a kind or alias, if there is one. */
export function schemaOf(name: string): PolicySchema | undefined {
  return policySchemas.find(({ kind, aliases }) => kind === name || aliases.includes(name));
}

/**
 * Whether a kind of policy supports a phase: `sparq`, `page-topk` and `verified-topk` are for decode only, `h2o-prefill`
 * for prefill only.
 */
export function supportsPhase(kind: PolicyKind, phase: AttentionPhase): boolean {
  return schemaOf(kind)?.phases.includes(phase) ?? false;
}

/** The distance of the queries that correct a policy's prefill; 0 without correction. */
export function deltaOf(policy: AttentionPolicy): number {
  return 'delta' in policy && policy.kind !== 'verified-topk' ? policy.delta : 0;
}

/** A policy as it is in one phase: without the correction of prefill in decode. */
export function inPhase(policy: AttentionPolicy, phase: AttentionPhase): AttentionPolicy {
  return phase === 'prefill' || deltaOf(policy) === 0 ? policy : ({ ...policy, delta: 0 } as AttentionPolicy);
}
