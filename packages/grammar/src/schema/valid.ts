/** Validates the values of `enum` and `const`, which other keywords may narrow. */
import type { Sliced } from '@winnow/tensor';
import { distinct, itemOf, memberOf, propertyOf, type Conjunction, type Facts, type Kind } from './facts.js';
import { everyOf, filtered, someOf } from './lists.js';
import type { Resolver } from './resolve.js';
import { isMultiple } from './numbers.js';
import { isString } from './strings.js';

export function* isValid(value: unknown, conjunction: Conjunction, resolver: Resolver): Sliced<boolean> {
  return yield* someOf(yield* resolver.resolve(conjunction), (facts) => meets(value, facts, resolver));
}

/** Whether a value satisfies the constraints. */
export function* meets(value: unknown, facts: Facts, resolver: Resolver): Sliced<boolean> {
  resolver.budget.spend(20);
  if (resolver.budget.isSliceOver()) yield;
  const kind = kindOf(value);
  if (kind === undefined || !facts.kinds.has(kind)) return false;
  if (facts.values !== undefined && !memberOf(facts.values)(value)) return false;
  if (typeof value === 'string') return yield* isString(facts, value, resolver.budget);
  if (typeof value === 'number') return isNumber(value, facts);
  if (Array.isArray(value)) return yield* isArray(value, facts, resolver);
  if (typeof value !== 'object' || value === null) return true;
  return yield* isObject(value, facts, resolver);
}

function* isArray(value: readonly unknown[], facts: Facts, resolver: Resolver): Sliced<boolean> {
  if (value.length < (facts.minItems ?? 0) || value.length > (facts.maxItems ?? Infinity)) return false;
  if (facts.unique !== undefined && distinct(value).length < value.length) return false;
  for (const { value: wanted, min } of facts.contains ?? []) {
    const found = yield* filtered(value, (item) => isValid(item, wanted, resolver));
    if (found.length < min) return false;
  }
  return yield* everyOf(value.entries(), ([index, item]) => isValid(item, itemOf(facts, index), resolver));
}

function* isObject(value: object, facts: Facts, resolver: Resolver): Sliced<boolean> {
  const names = Object.keys(value);
  if (names.length < (facts.minProperties ?? 0) || names.length > (facts.maxProperties ?? Infinity)) return false;
  if ([...(facts.required ?? [])].some((name) => !Object.hasOwn(value, name))) return false;
  return yield* everyOf(Object.entries(value), function* ([name, inner]) {
    if (!(yield* isValid(inner, yield* propertyOf(facts, name), resolver))) return false;
    return facts.keys === undefined || (yield* isValid(name, facts.keys, resolver));
  });
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
