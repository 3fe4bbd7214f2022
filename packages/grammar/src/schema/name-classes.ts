/** Names that are not declared, by the patterns that they match. */
import { complementDfa, intersectDfa, isEmptyDfa, trim, type Dfa } from '../regular/dfa.js';
import type { Sliced } from '@winnow/tensor';
import type { WorkBudget } from '../work-budget.js';
import { conjoined, type Conjunction, type Facts, type NamePattern, type Shape } from './facts.js';
import { patternDfa } from './strings.js';

/** Names whose values have the same schema. */
export interface NameClass {
  /** Undefined for all names. */
  readonly dfa: Dfa | undefined;
  readonly value: Conjunction;
}

/** @param names those that are not declared; undefined for all */
export function* nameClasses(
  { shapes = [] }: Facts,
  names: Dfa | undefined,
  budget: WorkBudget,
): Sliced<readonly NameClass[]> {
  let classes: { readonly dfa: Dfa | undefined; readonly matched: ReadonlySet<NamePattern> }[] = [
    { dfa: names, matched: new Set() },
  ];
  for (const pattern of new Set(shapes.flatMap(({ patterns }) => patterns))) {
    const matching = yield* patternDfa(pattern.pattern, budget);
    const others = yield* trim(yield* complementDfa(matching, budget), budget);
    const split: typeof classes = [];
    for (const { dfa, matched } of classes) {
      split.push(
        { dfa: yield* within(dfa, matching, budget), matched: new Set([...matched, pattern]) },
        { dfa: yield* within(dfa, others, budget), matched },
      );
    }
    classes = split.filter(({ dfa }) => dfa !== undefined && !isEmptyDfa(dfa));
  }
  return classes.map(({ dfa, matched }) => {
    const parts = shapes.map((shape) => valueIn(shape, matched));
    return { dfa, value: parts.reduce<Conjunction>(conjoined, []) };
  });
}

function* within(names: Dfa | undefined, part: Dfa, budget: WorkBudget): Sliced<Dfa> {
  return names === undefined ? part : yield* intersectDfa(names, part, budget);
}

function valueIn({ patterns, additional }: Shape, matched: ReadonlySet<NamePattern>): Conjunction {
  const own = patterns.filter((pattern) => matched.has(pattern));
  return own.length === 0 ? additional : own.flatMap(({ value }) => value);
}
