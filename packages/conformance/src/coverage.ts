/**
 * Which cases of a list run. Names of cases list values of parameters, separated by commas; a shape has several. Defects of
 * kernels show with one value of one parameter, or with a pair of kinds of values (a dtype with a remainder, one token with
 * a bias); combinations of three repeat the code paths of pairs.
 */
import type { DType } from '@winnow/tensor';

/** `full`: every case. `pairwise`: each value of each parameter, and each pair of kinds of values, at least once. */
export type Coverage = 'full' | 'pairwise';

/** What coverage goes by: a name, and dtypes by tensor where they matter. */
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

function aspectsOf({ name, dtypes = {} }: NamedCase): ReadonlySet<string> {
  const values = name
    .split(', ')
    .flatMap((part) => part.split(/ x | -> | of /).map((value, axis) => `${axis}: ${value}`));
  const types = Object.entries(dtypes).map(([tensor, dtype]) => `${tensor}: ${dtype}`);
  const kinds = [...new Set([...values.map(kindOf), ...types])];
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
