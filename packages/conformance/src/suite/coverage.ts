/**
 * Which cases of a list run. Names of cases list values of parameters, separated by commas; a shape has several.
 * Defects of kernels show with one value of one parameter, or with a pair of kinds of values (a dtype with a remainder,
 * one token with a bias); combinations of three repeat the code paths of pairs.
 */
import type { DType } from '@winnow/tensor';

/** `full`: every case. `pairwise`: each value of each parameter, and each pair of kinds of values, at least once. */
export type Coverage = 'full' | 'pairwise';

/** The inputs of case selection: a name, and dtypes by tensor if they matter. */
export interface NamedCase {
  readonly name: string;
  readonly dtypes?: Readonly<Record<string, DType>>;
}

/** The cases to run, in the order of the list. */
export function selectCases<Case extends NamedCase>(cases: readonly Case[], coverage: Coverage): readonly Case[] {
  if (coverage === 'full') return cases;
  const aspects = cases.map(aspectsOf);
  const numNew = aspects.map((own) => own.size);
  const casesWith = Map.groupBy(
    aspects.flatMap((own, at) => [...own].map((aspect) => ({ aspect, at }))),
    ({ aspect }) => aspect,
  );
  const chosen = new Set<Case>();
  for (;;) {
    const best = numNew.indexOf(Math.max(0, ...numNew));
    if (best < 0 || numNew[best] === 0) return cases.filter((candidate) => chosen.has(candidate));
    chosen.add(cases[best] as Case);
    for (const aspect of aspects[best] as ReadonlySet<string>) {
      for (const { at } of casesWith.get(aspect) ?? []) numNew[at]--;
      casesWith.delete(aspect);
    }
  }
}

/**
 * The variants of a backend (threads, memories) that each case runs on. `full`: all of them. `pairwise`: each case on
 * at least one variant, and each kind of value on every variant, since values of the same kind take the same path.
 */
export function assignVariants<Case extends NamedCase, Variant extends string>(
  cases: readonly Case[],
  variants: readonly Variant[],
  coverage: Coverage,
): ReadonlyMap<Case, readonly Variant[]> {
  return assignGroups(
    cases,
    variants.map((variant) => [variant]),
    coverage,
  );
}

/**
 * `assignVariants` for variants in groups, which may overlap: each kind of value needs one variant of each group. Of equally
 * good variants, the one that ran least comes first.
 */
export function assignGroups<Case extends NamedCase, Variant extends string>(
  cases: readonly Case[],
  groups: readonly (readonly Variant[])[],
  coverage: Coverage,
): ReadonlyMap<Case, readonly Variant[]> {
  const variants = [...new Set(groups.flat())];
  if (coverage === 'full') return new Map(cases.map((each) => [each, variants]));
  const numRuns = new Map<Variant, number>();
  const covered = new Set<string>();
  const pairsOf = (kinds: readonly string[], variant: Variant): string[] =>
    groups.flatMap((group, at) => (group.includes(variant) ? kinds.map((kind) => `${kind} of ${at}`) : []));
  const assigned = cases.map((each) => ({ each, kinds: [...kindsOf(each)], own: [] as Variant[] }));
  for (const isFirst of [true, false]) {
    for (const { kinds, own } of assigned) {
      for (;;) {
        const [best] = variants
          .map((variant) => {
            const pairs = pairsOf(kinds, variant).filter((pair) => !covered.has(pair));
            return { variant, pairs, runs: numRuns.get(variant) ?? 0 };
          })
          .sort((a, b) => b.pairs.length - a.pairs.length || a.runs - b.runs);
        if (best === undefined || (!isFirst && best.pairs.length === 0)) break;
        own.push(best.variant);
        numRuns.set(best.variant, best.runs + 1);
        for (const pair of best.pairs) covered.add(pair);
        if (isFirst) break;
      }
    }
  }
  return new Map(assigned.map(({ each, own }) => [each, own]));
}

/** The items that each of `count` takers gets. `full`: all. `pairwise`: each item has a taker, and each taker an item. */
export function inTurn<Item>(
  items: readonly Item[],
  count: number,
  first: number,
  coverage: Coverage,
): readonly (readonly Item[])[] {
  return Array.from({ length: count }, (_, taker) => {
    if (coverage === 'full') return items;
    if (count < items.length) return items.filter((_item, index) => index % count === taker);
    return items.filter((_item, index) => index === (first + taker) % items.length);
  });
}

function valuesOf({ name, dtypes = {} }: NamedCase): {
  readonly values: readonly string[];
  readonly types: readonly string[];
} {
  const values = name
    .split(', ')
    .flatMap((part) => part.split(/ x | -> | of /).map((value, axis) => `${axis}: ${value}`));
  return { values, types: Object.entries(dtypes).map(([tensor, dtype]) => `${tensor}: ${dtype}`) };
}

function kindsOf(named: NamedCase): ReadonlySet<string> {
  const { values, types } = valuesOf(named);
  return new Set([...values.map(kindOf), ...types]);
}

function aspectsOf(named: NamedCase): ReadonlySet<string> {
  const { values, types } = valuesOf(named);
  const kinds = [...kindsOf(named)];
  const pairs = kinds.flatMap((kind, i) => kinds.slice(i + 1).map((other) => `${kind} with ${other}`));
  return new Set([...values, ...types, ...pairs]);
}

/** Numbers take different paths when they are 0, 1, fewer than a vector has lanes, or more. */
function kindOf(value: string): string {
  return value.replaceAll(/(?<!\w)\d+(\.\d+)?(?!\w)/g, (digits) => {
    const number = Number(digits);
    return number <= 1 ? digits : number <= 4 ? 'few' : 'many';
  });
}
