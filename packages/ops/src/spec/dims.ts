/**
 * Dimensions of program tensors: numbers, or symbols that every step binds (`T` tokens, `B` sequences, `R` rows
 * of logits). A shape contract such as `'T N H'` names the axes of one op; matching binds each letter to a dimension.
 */
import { formatShape, ShapeError } from '@winnow/tensor';

/** A fixed size, or the name of a symbol of the program. */
export type Dim = number | string;

/** The bindings of a shape contract's letters in one record. `...` binds any number of leading axes. */
export type Bindings = Map<string, Dim | readonly Dim[]>;

/** An axis that is written as a number has that size. */
function literal(letter: string): number | undefined {
  return /^\d+$/.test(letter) ? Number(letter) : undefined;
}

/** Splits `'... T H'` into its axis letters. */
function letters(contract: string): string[] {
  return contract === '' ? [] : contract.split(' ');
}

/**
 * Matches a shape against a contract and adds the letters to `bindings`.
 * @throws {ShapeError} when the rank differs or a letter is bound to another dimension
 */
export function matchShape(
  op: string,
  name: string,
  contract: string,
  shape: readonly Dim[],
  bindings: Bindings,
): void {
  let axes = letters(contract);
  let dims = shape;
  if (axes[0] === '...') {
    const numLeading = shape.length - (axes.length - 1);
    if (numLeading < 0) throw mismatch(op, name, contract, shape, bindings);
    const leading = shape.slice(0, numLeading);
    const bound = bindings.get('...') as readonly Dim[] | undefined;
    if (bound === undefined) bindings.set('...', leading);
    else if (bound.length !== numLeading || bound.some((dim, axis) => dim !== leading[axis])) {
      throw mismatch(op, name, contract, shape, bindings);
    }
    axes = axes.slice(1);
    dims = shape.slice(numLeading);
  }
  if (axes.length !== dims.length) throw mismatch(op, name, contract, shape, bindings);
  for (let axis = 0; axis < axes.length; axis++) {
    const letter = axes[axis];
    const bound = literal(letter) ?? bindings.get(letter);
    if (bound === undefined) bindings.set(letter, dims[axis]);
    else if (bound !== dims[axis]) throw mismatch(op, name, contract, shape, bindings);
  }
}

/** The shape that a contract describes once all its letters are bound. */
export function shapeOf(op: string, name: string, contract: string, bindings: Bindings): Dim[] {
  const shape: Dim[] = [];
  for (const letter of letters(contract)) {
    const bound = literal(letter) ?? bindings.get(letter);
    if (bound === undefined) {
      throw new ShapeError({
        op,
        rule: `shape of ${name}`,
        expected: contract,
        actual: `no binding of ${letter}`,
      });
    }
    if (typeof bound === 'object') shape.push(...bound);
    else shape.push(bound);
  }
  return shape;
}

function mismatch(op: string, name: string, contract: string, shape: readonly Dim[], bindings: Bindings): ShapeError {
  const known = letters(contract)
    .filter((letter) => bindings.has(letter))
    .map((letter) => `${letter} = ${String(bindings.get(letter))}`);
  const where = known.length === 0 ? '' : ` with ${known.join(', ')}`;
  return new ShapeError({
    op,
    rule: `shape of ${name}`,
    expected: `[${contract}]${where}`,
    actual: formatShape(shape),
  });
}

/** Number of elements with every symbol at its capacity. */
export function maxElements(shape: readonly Dim[], capacities: ReadonlyMap<string, number>): number {
  let product = 1;
  for (const dim of shape) product *= typeof dim === 'number' ? dim : (capacities.get(dim) ?? NaN);
  return product;
}

/**
 * A key of the product of fixed axes and sorted symbols: equal if and only if the numbers of elements are always equal.
 */
export function elementsKey(shape: readonly Dim[]): string {
  let product = 1;
  const symbols: string[] = [];
  for (const dim of shape) {
    if (typeof dim === 'number') product *= dim;
    else symbols.push(dim);
  }
  return [product, ...symbols.sort()].join(' ');
}
