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
  const left = new Map(cases.map((candidate) => [candidate, aspectsOf(candidate)]));
  const covered = new Set<string>();
  const chosen = new Set<Case>();
  for (;;) {
    let best: Case | undefined;
    let mostNew = 0;
    for (const [candidate, aspects] of left) {
      let numNew = 0;
      for (const aspect of aspects) if (!covered.has(aspect)) numNew += 1;
      if (numNew > mostNew) [best, mostNew] = [candidate, numNew];
    }
    if (best === undefined) return cases.filter((candidate) => chosen.has(candidate));
    for (const aspect of left.get(best) ?? []) covered.add(aspect);
    left.delete(best);
    chosen.add(best);
  }
}

/**
 * The variants of a backend (threads, memories) that each case runs on. `full`: all of them. `pairwise`: each case on
 * at least one variant, and each kind of value on every variant, since values of the same kind take the same path.
 */
export function assignVariants<Case extends NamedCase>(
  cases: readonly Case[],
  variants: readonly string[],
  coverage: Coverage,
): ReadonlyMap<Case, readonly string[]> {
  if (coverage === 'full') return new Map(cases.map((each) => [each, variants]));
  const assigned = new Map(cases.map((each): [Case, string[]] => [each, []]));
  const covered = new Set<string>();
  const pairsOf = (each: Case, variant: string): string[] => [...kindsOf(each)].map((kind) => `${kind} on ${variant}`);
  for (const [at, [each, own]] of [...assigned].entries()) {
    // equally good variants alternate
    const inTurn = variants.map((_, index) => variants[(at + index) % variants.length] as string);
    const numNew = (variant: string): number => pairsOf(each, variant).filter((pair) => !covered.has(pair)).length;
    const [first] = inTurn.toSorted((a, b) => numNew(b) - numNew(a));
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
