/** Whether no value satisfies two sets of facts. Conservative: false when undecided. */
import type { Sliced } from '@winnow/tensor';
import { memberOf, propertyOf, type Conjunction, type Facts } from './facts.js';
import { everyOf, someOf } from './lists.js';

type Resolve = (conjunction: Conjunction) => Sliced<readonly Facts[]>;

export function* areDisjoint(a: Facts, b: Facts, resolve: Resolve, depth = 0): Sliced<boolean> {
  const common = [...a.kinds].filter((kind) => b.kinds.has(kind));
  if (common.length === 0) return true;
  if (a.values !== undefined && b.values !== undefined) {
    return !a.values.some(memberOf(b.values));
  }
  if (common.every((kind) => kind === 'integer' || kind === 'decimal')) {
    return isBelow(a, b) || isBelow(b, a);
  }
  if (common.length !== 1 || common[0] !== 'object' || depth > 3) return false;
  return (yield* isApart(a, b, resolve, depth)) || (yield* isApart(b, a, resolve, depth));
}

function isBelow({ maximum }: Facts, { minimum }: Facts): boolean {
  if (maximum === undefined || minimum === undefined) return false;
  if (maximum.value === minimum.value) return maximum.isExclusive || minimum.isExclusive;
  return maximum.value < minimum.value;
}

/** A property that one requires and the other forbids or requires with another value. */
function isApart(a: Facts, b: Facts, resolve: Resolve, depth: number): Sliced<boolean> {
  return someOf(a.required ?? [], function* (name) {
    // the property may be missing in b, but then the value is invalid for a
    const own = yield* resolve(yield* propertyOf(a, name));
    const others = yield* resolve(yield* propertyOf(b, name));
    return yield* everyOf(own, (x) => everyOf(others, (y) => areDisjoint(x, y, resolve, depth + 1)));
  });
}
