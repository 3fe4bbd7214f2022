/**
 * Policy files: the attention policy of one model that `winnow tune` found, with what was measured, on which text and
 * machine. JSON, version 1 (docs/formats/policy-file.md).
 */
import { ArgumentError, FormatError, JsonFields } from '@winnow/tensor';
import { formatAttention, parseAttention } from './attention-spec.js';
import type { AttentionPhase, AttentionSpec } from './kinds.js';
import { resolvePolicy } from './resolve-policy.js';

/** Readers reject newer versions. */
const policyFileVersion = 1;

/** What had to be kept: a mean KL divergence, a share of the recall of dense attention, or a speed-up. */
export type PolicyBudget = { readonly kld: number } | { readonly recall: number } | { readonly speedup: number };

/** Figures of one phase on held-out text. */
export interface PhaseFigures {
  /** Mean KL divergence from dense attention, in nats, and its standard error. */
  readonly kld: number;
  readonly kldError: number;
  /** Visited pairs divided by dense pairs; missing where it depends on queries and keys. */
  readonly density?: number;
  /** Milliseconds: of the whole prompt in prefill, of one token in decode. */
  readonly ms: number;
  /** The same with dense attention. */
  readonly denseMs: number;
}

/** A text, by its name and a hash of its tokens. */
export interface MeasuredText {
  readonly name: string;
  readonly numTokens: number;
  readonly hash: string;
}

/** The policy of a model, as `winnow tune` found it. */
export interface TunedPolicy {
  /** Hash of the weights: `weightsHash` of `@winnow/engine`. */
  readonly modelHash: string;
  readonly numLayers: number;
  readonly attention: AttentionSpec;
  readonly budget: PolicyBudget;
  /** Tokens of the context it was tuned for. */
  readonly contextSize: number;
  readonly seed: number;
  readonly measured: {
    readonly prefill: PhaseFigures;
    readonly decode: PhaseFigures;
    /** Share of correct answers in recall tasks; missing where none were run. */
    readonly recall?: number;
    readonly denseRecall?: number;
  };
  /** What the search saw, and what it did not see. */
  readonly text: { readonly search: MeasuredText; readonly heldOut: MeasuredText };
  readonly machine: { readonly name: string; readonly backend: string };
}

/** What a policy file must match. */
export interface ReadTunedPolicyOptions {
  /** For messages. */
  readonly source: string;
  readonly modelHash?: string | undefined;
}

/** Far more than any model has. */
const maxLayers = 4096;
const maxCount = 2 ** 50;

/** The text of a policy file. */
export function formatTunedPolicy({ attention, ...policy }: TunedPolicy): string {
  return `${JSON.stringify({ version: policyFileVersion, attention: formatAttention(attention), ...policy }, null, 2)}\n`;
}

/**
 * Reads and checks a policy file.
 * @throws {FormatError} for a file that is damaged, has a newer version, or belongs to another model
 */
export function readTunedPolicy(text: string, { source, modelHash }: ReadTunedPolicyOptions): TunedPolicy {
  const fields = fieldsOf(text, source);
  const version = fields.integer('version', 1, maxCount);
  if (version > policyFileVersion) fields.refuse('version', `at most ${policyFileVersion} (made by a newer Winnow?)`);
  const ownHash = fields.text('modelHash');
  if (modelHash !== undefined && ownHash !== modelHash) {
    const message = `expected the hash of the model, ${modelHash}, found ${ownHash} (tuned for another model)`;
    throw new FormatError({ source, field: 'policy.modelHash', message });
  }
  const numLayers = fields.integer('numLayers', 1, maxLayers);
  const measured = fields.object('measured');
  const texts = fields.object('text');
  const machine = fields.object('machine');
  return {
    modelHash: ownHash,
    numLayers,
    attention: readAttention(fields, numLayers),
    budget: readBudget(fields.object('budget')),
    contextSize: fields.integer('contextSize', 1, 2 ** 31 - 1),
    seed: fields.integer('seed', 0, Number.MAX_SAFE_INTEGER),
    measured: {
      prefill: readFigures(measured.object('prefill')),
      decode: readFigures(measured.object('decode')),
      ...(measured.has('recall') ? { recall: measured.number('recall', 0, 1) } : {}),
      ...(measured.has('denseRecall') ? { denseRecall: measured.number('denseRecall', 0, 1) } : {}),
    },
    text: { search: readText(texts.object('search')), heldOut: readText(texts.object('heldOut')) },
    machine: { name: machine.text('name'), backend: machine.text('backend') },
  };
}

function fieldsOf(text: string, source: string): JsonFields {
  const field = 'policy';
  try {
    return new JsonFields(JSON.parse(text), source, field);
  } catch (cause) {
    if (FormatError.isInstance(cause)) throw cause;
    throw new FormatError({ source, field, message: 'expected JSON' }, { cause });
  }
}

/** The policies, which must be those of a model with so many layers. */
function readAttention(fields: JsonFields, numLayers: number): AttentionSpec {
  const text = fields.text('attention');
  try {
    const spec = parseAttention(text);
    resolvePolicy(spec, { numLayers });
    return spec;
  } catch (error) {
    if (!ArgumentError.isInstance(error)) throw error;
    return fields.refuse('attention', `policies (${error.message})`);
  }
}

function readBudget(fields: JsonFields): PolicyBudget {
  if (fields.has('kld')) return { kld: fields.number('kld', 0, maxCount) };
  if (fields.has('recall')) return { recall: fields.number('recall', 0, 1) };
  return { speedup: fields.number('speedup', 1, maxCount) };
}

function readFigures(fields: JsonFields): PhaseFigures {
  const count = (name: string): number => fields.number(name, 0, maxCount);
  return {
    kld: count('kld'),
    kldError: count('kldError'),
    ...(fields.has('density') ? { density: count('density') } : {}),
    ms: count('ms'),
    denseMs: count('denseMs'),
  };
}

function readText(fields: JsonFields): MeasuredText {
  return { name: fields.text('name'), numTokens: fields.integer('numTokens', 1, maxCount), hash: fields.text('hash') };
}

/** Whether two layers' policies are equal. */
const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

/**
 * The shortest specification of a policy per layer: the most frequent policy of a phase for the phase, and ranges of
 * layers for the others.
 */
export function specOfLayers(
  layers: readonly Readonly<Record<AttentionPhase, AttentionSpec['prefill']>>[],
): AttentionSpec {
  const common = (phase: AttentionPhase): AttentionSpec['prefill'] => {
    const counts = layers.map((layer) => layers.filter((other) => same(other[phase], layer[phase])).length);
    return layers[counts.indexOf(Math.max(...counts))]?.[phase] ?? { kind: 'dense' };
  };
  const spec = { prefill: common('prefill'), decode: common('decode') };
  const overrides: { first: number; last: number; phase: AttentionPhase; policy: AttentionSpec['prefill'] }[] = [];
  for (const phase of ['prefill', 'decode'] as const) {
    for (const [layer, { [phase]: policy }] of layers.entries()) {
      const last = overrides.at(-1);
      if (same(policy, spec[phase])) continue;
      if (last?.phase === phase && last.last === layer - 1 && same(last.policy, policy)) last.last = layer;
      else overrides.push({ first: layer, last: layer, phase, policy });
    }
  }
  return { ...spec, denseFirst: 0, denseLast: 0, layers: overrides };
}
