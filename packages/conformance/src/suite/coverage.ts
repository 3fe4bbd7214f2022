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
  if (coverage === 'full') return new Map(cases.map((each) => [each, variants]));
  const assigned = new Map(cases.map((each): [Case, Variant[]] => [each, []]));
  const covered = new Set<string>();
  const kinds = new Map(cases.map((each) => [each, [...kindsOf(each)]]));
  const pairsOf = (each: Case, variant: string): string[] =>
    (kinds.get(each) as string[]).map((kind) => `${kind} on ${variant}`);
  for (const [at, [each, own]] of [...assigned].entries()) {
    // equally good variants alternate
    const rotated = variants.map((_, index) => variants[(at + index) % variants.length] as Variant);
    const numNew = (variant: Variant): number => pairsOf(each, variant).filter((pair) => !covered.has(pair)).length;
    const [first] = rotated.toSorted((a, b) => numNew(b) - numNew(a));
    if (first === undefined) continue;
    own.push(first);
    for (const pair of pairsOf(each, first)) covered.add(pair);
  }
  for (const [each, own] of assigned) {
    for (const variant of variants) {
      const pairs = pairsOf(each, variant);
      if (pairs.every((pair) => covered.has(pair))) continue;
      own.push(variant);
      for (const pair of pairs) covered.add(pair);
    }
  }
  return assigned;
}

/**
 * `assignVariants` for variants in groups, each of which runs the same kernels in the same way: the variants of a group
 * take turns, and each kind of value needs one of them.
 */
export function assignGroups<Case extends NamedCase>(
  cases: readonly Case[],
  groups: readonly (readonly string[])[],
  coverage: Coverage,
): ReadonlyMap<Case, readonly string[]> {
  if (coverage === 'full') return assignVariants(cases, groups.flat(), coverage);
  const numTurns = groups.map(() => 0);
  const nextOf = (group: number): string => {
    const variants = groups[group] as readonly string[];
    const turn = numTurns[group]++;
    return variants[turn % variants.length] as string;
  };
  const assigned = assignVariants(cases, [...groups.keys()].map(String), coverage);
  return new Map([...assigned].map(([each, own]) => [each, own.map((group) => nextOf(Number(group)))]));
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
