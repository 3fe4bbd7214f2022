/** Whether no value satisfies two sets of facts. Conservative: false when undecided. */
import { isSame, propertyOf, type Conjunction, type Facts } from './facts.js';

export function areDisjoint(
  a: Facts,
  b: Facts,
  resolve: (conjunction: Conjunction) => readonly Facts[],
  depth = 0,
): boolean {
  const common = [...a.kinds].filter((kind) => b.kinds.has(kind));
  if (common.length === 0) return true;
  if (a.values !== undefined && b.values !== undefined) {
    return !a.values.some((value) => b.values?.some(isSame(value)));
  }
  if (common.every((kind) => kind === 'integer' || kind === 'decimal')) {
    return isBelow(a, b) || isBelow(b, a);
  }
  if (common.length !== 1 || common[0] !== 'object' || depth > 3) return false;
  return isApart(a, b, resolve, depth) || isApart(b, a, resolve, depth);
}

function isBelow({ maximum }: Facts, { minimum }: Facts): boolean {
  if (maximum === undefined || minimum === undefined) return false;
  if (maximum.value === minimum.value) return maximum.isExclusive || minimum.isExclusive;
  return maximum.value < minimum.value;
}

/** A property that one requires and the other forbids or requires with another value. */
function isApart(a: Facts, b: Facts, resolve: (conjunction: Conjunction) => readonly Facts[], depth: number): boolean {
  return [...(a.required ?? [])].some((name) => {
    const [left, right] = [propertyOf(a, name), propertyOf(b, name)];
    // the property may be missing in b, but then the value is invalid for a
    const [own, others] = [resolve(left), resolve(right)];
    return own.every((x) => others.every((y) => areDisjoint(x, y, resolve, depth + 1)));
  });
}
