/** Rejects options that do not exist. Every public function checks its options once, before anything else. */
import { ArgumentError, WinnowError } from './errors.js';

/** The members of a union that are groups: objects whose options are all optional. */
type GroupOf<Value> = Value extends object
  ? string extends keyof Value
    ? never
    : {} extends Value
      ? Value
      : never
  : never;

/** Names of options: `true` for a value, the names inside for a group. A list of groups has the names of its items. */
export interface NameTree {
  readonly [name: string]: true | NameTree;
}

/** The names of all options of `Options`, so that a missing, wrong or additional name does not compile. */
export type OptionNames<Options> = {
  readonly [Name in keyof Options]-?: [GroupOf<Options[Name]>] extends [never]
    ? true | NameTree
    : OptionNames<GroupOf<Options[Name]>>;
};

/** An option that does not exist: `unknown option "contxt"; did you mean "context"?` */
export class UnknownOptionError extends WinnowError {
  override readonly name: string = 'UnknownOptionError';
  /** The path of the option, such as `kvCache.dtyp`. */
  readonly option: string;
  /** The path of the option with the nearest name, if any is near. */
  readonly nearest: string | undefined;

  constructor({ option, nearest, known }: { option: string; nearest: string | undefined; known: readonly string[] }) {
    const advice = nearest === undefined ? `expected one of ${known.join(', ')}` : `did you mean "${nearest}"?`;
    super('argument', `unknown option "${option}"; ${advice}`);
    this.option = option;
    this.nearest = nearest;
  }

  static override isInstance(value: unknown): value is UnknownOptionError {
    return WinnowError.isInstance(value) && value.code === 'argument' && 'nearest' in value;
  }
}

/**
 * Checks the names of options, including those in groups and lists of groups.
 * @throws {UnknownOptionError} for the first unknown one
 * @throws {ArgumentError} for options that are not an object
 */
export function checkOptions<Options extends object>(options: Options, names: OptionNames<NoInfer<Options>>): void {
  if (!isObject(options) || Array.isArray(options)) {
    throw new ArgumentError({ argument: 'options', expected: 'an object', actual: String(options) });
  }
  checkNames(options, names, '', names);
}

function checkNames(value: object, names: NameTree, prefix: string, root: NameTree): void {
  for (const [name, inner] of Object.entries(value)) {
    const known = Object.hasOwn(names, name) ? names[name] : undefined;
    const path = prefix + name;
    if (known === undefined) {
      const nearest = nearestOf(path, name, pathsOf(names, prefix), pathsOf(root, ''));
      throw new UnknownOptionError({ option: path, nearest, known: Object.keys(names) });
    }
    if (known === true) continue;
    if (Array.isArray(inner)) inner.forEach((item, index) => checkItem(item, known, `${path}[${index}].`, root));
    else checkItem(inner, known, `${path}.`, root);
  }
}

/** Values other than plain objects, such as a URL or an open file, are not groups. */
function checkItem(value: unknown, names: NameTree, prefix: string, root: NameTree): void {
  if (isObject(value) && [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null)) {
    checkNames(value, names, prefix, root);
  }
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function pathsOf(names: NameTree, prefix: string): string[] {
  return Object.entries(names).flatMap(([name, inner]) => [
    prefix + name,
    ...(inner === true ? [] : pathsOf(inner, `${prefix}${name}.`)),
  ]);
}

/** Options with shorter paths first. */
function byDepth(paths: readonly string[]): string[] {
  const depthOf = (path: string): number => path.split('.').length;
  return paths.toSorted((a, b) => depthOf(a) - depthOf(b));
}

/**
 * An option with the same name in another group, or the one with the smallest edit distance, preferring the same group,
 * then short paths.
 */
function nearestOf(path: string, name: string, own: readonly string[], all: readonly string[]): string | undefined {
  const plain = (text: string): string => text.toLowerCase().replaceAll(/[-_]/g, '');
  const lastOf = (text: string): string => text.slice(text.lastIndexOf('.') + 1);
  const known = [...byDepth(own), ...byDepth(all)];
  const namesake = known.find((other) => plain(lastOf(other)) === plain(name));
  if (namesake !== undefined) return namesake;
  const editsTo = (other: string): number =>
    Math.min(numEdits(plain(name), plain(lastOf(other))), numEdits(plain(path), plain(other)));
  return closest(known, Math.max(2, Math.floor(name.length * 0.4)), editsTo);
}

/** The known name with the fewest edits from `name`, if any is near. */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  const maxEdits = Math.max(1, Math.floor(name.length * 0.4));
  return closest(known, maxEdits, (candidate) => numEdits(name.toLowerCase(), candidate.toLowerCase()));
}

/** The candidate with the fewest edits, if it takes at most `maxEdits`. */
function closest(known: readonly string[], maxEdits: number, editsTo: (known: string) => number): string | undefined {
  let [nearest, fewest]: [string | undefined, number] = [undefined, maxEdits + 1];
  for (const candidate of known) {
    const edits = editsTo(candidate);
    if (edits < fewest) [nearest, fewest] = [candidate, edits];
  }
  return nearest;
}

/** Levenshtein distance: the fewest insertions, deletions and substitutions that turn one text into the other. */
function numEdits(from: string, to: string): number {
  let above = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (const [row, letter] of [...from].entries()) {
    const edits = [row + 1];
    for (const [column, other] of [...to].entries()) {
      const substitute = (above[column] as number) + (letter === other ? 0 : 1);
      edits.push(Math.min(substitute, (above[column + 1] as number) + 1, (edits[column] as number) + 1));
    }
    above = edits;
  }
  return above[to.length] as number;
}
