/** Checks values of policy fields and completes policies; shared by the text form, the JSON form and typed objects. */
import { ArgumentError, describeValue, isRecord, nearestName } from '@winnow/tensor';
import {
  deltaOf,
  inPhase,
  policySchemas,
  schemaOf,
  supportsPhase,
  type FieldValue,
  type PolicyField,
  type PolicySchema,
} from './fields.js';
import type { AttentionPhase, AttentionPolicy } from './kinds.js';

/** Largest integer of a policy: positions and counts are 32-bit in every kernel. */
const maxInteger = 2 ** 31 - 1;

/** Describes the valid values of a field. */
export function expectedOf({ type, min, above, below, words = [] }: PolicyField): string {
  const others = words.map((word) => ` or ${word}`).join('');
  switch (type) {
    case 'choice':
      return words.join(' | ');
    case 'boolean':
      return 'true | false';
    case 'positions':
      return `distinct positions such as 0+5+9${others}`;
    case 'integer':
      return `an integer from ${min}${others}`;
    case 'number':
      return `a number in ${above === undefined ? `[${min}` : `(${above}`}, ${below})${others}`;
  }
}

/** Whether a value of a typed object fits its field. */
export function fits(
  { type, min = 0, above = -Infinity, below = Infinity, words = [] }: PolicyField,
  value: unknown,
): value is FieldValue {
  switch (type) {
    case 'choice':
      return typeof value === 'string' && words.includes(value);
    case 'boolean':
      return typeof value === 'boolean';
    case 'positions':
      return Array.isArray(value) && value.every(isPosition) && new Set(value).size === value.length;
    case 'integer':
      if (typeof value === 'string') return words.includes(value);
      return isPosition(value) && value >= min;
    case 'number':
      return typeof value === 'number' && value >= min && value > above && value < below;
  }
}

function isPosition(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= maxInteger;
}

/** The schema of a name. @throws {ArgumentError} for an unknown name */
export function knownSchema(name: string, argument: string): PolicySchema {
  const schema = schemaOf(name);
  if (schema === undefined) {
    const names = policySchemas.flatMap(({ kind, aliases }) => [kind, ...aliases]);
    const nearest = nearestName(name, names);
    throw new ArgumentError({
      argument,
      expected: names.join(' | '),
      actual: name === '' ? 'nothing' : JSON.stringify(name),
      ...(nearest === undefined ? {} : { hint: `did you mean ${nearest}?` }),
    });
  }
  return schema;
}

/** Fills in defaults and checks the combination. @throws {ArgumentError} for an impossible one */
export function complete(
  schema: PolicySchema,
  given: Readonly<Record<string, FieldValue | undefined>>,
  argument: string,
): AttentionPolicy {
  const policy: Record<string, unknown> = { kind: schema.kind };
  for (const { property, fallback } of schema.fields) policy[property] = given[property] ?? fallback(given);
  const completed = policy as unknown as AttentionPolicy; // the schema has every property of the type
  const problem = schema.check?.(completed);
  if (problem !== undefined) {
    const { key, expected, actual } = problem;
    throw new ArgumentError({ argument: `${argument}: ${key}`, expected, actual });
  }
  return completed;
}

/**
 * Checks a policy that comes from JSON or from untyped code, and fills in defaults for absent properties.
 * @throws {ArgumentError} for an unknown kind or property, a value out of range, an impossible combination
 */
export function checkPolicy(value: unknown, argument = 'policy'): AttentionPolicy {
  if (!isRecord(value)) {
    throw new ArgumentError({
      argument,
      expected: 'an object with a kind',
      actual: describeValue(value),
    });
  }
  const { kind, ...rest } = value;
  const schema = knownSchema(typeof kind === 'string' ? kind : '', `${argument}: kind`);
  const given: Record<string, FieldValue> = {};
  for (const [property, actual] of Object.entries(rest)) {
    const field = schema.fields.find((candidate) => candidate.property === property);
    if (field === undefined) {
      const expected = schema.fields.map((candidate) => candidate.property).join(' | ') || 'no properties';
      throw new ArgumentError({ argument: `${argument}: ${schema.kind}`, expected, actual: property });
    }
    if (actual === undefined) continue;
    if (!fits(field, actual)) {
      throw new ArgumentError({
        argument: `${argument}: ${schema.kind}.${property}`,
        expected: expectedOf(field),
        actual: JSON.stringify(actual),
      });
    }
    given[property] = actual;
  }
  return complete(schema, given, `${argument}: ${schema.kind}`);
}

/** The policy. @throws {ArgumentError} that names `argument`, for one that the phase does not support */
export function phasePolicy(policy: AttentionPolicy, phase: AttentionPhase, argument: string): AttentionPolicy {
  if (supportsPhase(policy.kind, phase)) {
    if (inPhase(policy, phase) === policy) return policy;
    const actual = `${deltaOf(policy)}, which corrects prefill only`;
    throw new ArgumentError({ argument: `${argument}: ${policy.kind}: delta`, expected: '0', actual });
  }
  const possible = policySchemas.filter(({ phases }) => phases.includes(phase)).map(({ kind }) => kind);
  throw new ArgumentError({
    argument,
    expected: possible.join(' | '),
    actual: `${policy.kind}, which is for ${phase === 'prefill' ? 'decode' : 'prefill'} only`,
  });
}
