/** Validates the values of `enum` and `const`, which other keywords may narrow. */
import { itemOf, propertyOf, isSame, type Conjunction, type Facts, type Kind } from './facts.js';
import type { Resolver } from './resolve.js';
import { isMultiple } from './numbers.js';
import { isString } from './strings.js';

export function isValid(value: unknown, conjunction: Conjunction, resolver: Resolver): boolean {
  return resolver.resolve(conjunction).some((facts) => meets(value, facts, resolver));
}

/** Whether a value satisfies the constraints. */
export function meets(value: unknown, facts: Facts, resolver: Resolver): boolean {
  const kind = kindOf(value);
  if (kind === undefined || !facts.kinds.has(kind)) return false;
  if (facts.values !== undefined && !facts.values.some(isSame(value))) return false;
  if (typeof value === 'string') return isString(facts, value, resolver.budget);
  if (typeof value === 'number') return isNumber(value, facts);
  if (Array.isArray(value)) {
    if (value.length < (facts.minItems ?? 0) || value.length > (facts.maxItems ?? Infinity)) return false;
    if (facts.unique !== undefined && value.some((item, index) => value.slice(0, index).some(isSame(item))))
      return false;
    const hasAll = (facts.contains ?? []).every(
      (one) => value.filter((item) => isValid(item, one.value, resolver)).length >= one.min,
    );
    return hasAll && value.every((item, index) => isValid(item, itemOf(facts, index), resolver));
  }
  if (typeof value !== 'object' || value === null) return true;
  const names = Object.keys(value);
  if (names.length < (facts.minProperties ?? 0) || names.length > (facts.maxProperties ?? Infinity)) return false;
  if ([...(facts.required ?? [])].some((name) => !names.includes(name))) return false;
  return Object.entries(value).every(
    ([name, inner]) =>
      isValid(inner, propertyOf(facts, name), resolver) &&
      (facts.keys === undefined || isValid(name, facts.keys, resolver)),
  );
}

function isNumber(value: number, { minimum, maximum, divisors = [] }: Facts): boolean {
  if (minimum !== undefined && (minimum.isExclusive ? value <= minimum.value : value < minimum.value)) return false;
  if (maximum !== undefined && (maximum.isExclusive ? value >= maximum.value : value > maximum.value)) return false;
  return divisors.every((divisor) => isMultiple(value, divisor));
}

export function kindOf(value: unknown): Kind | undefined {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  switch (typeof value) {
    case 'boolean':
      return 'boolean';
    case 'string':
      return 'string';
    case 'number':
      return Number.isInteger(value) ? 'integer' : 'decimal';
    case 'object':
      return 'object';
    default:
      return undefined;
  }
}
