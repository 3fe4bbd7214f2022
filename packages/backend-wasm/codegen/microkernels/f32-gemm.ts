/**
 * Templates of f32 GEMM microkernels: `c[MR, NR] (+)= w[MR, K] x[K, NR]`. The right-hand side is packed with NR columns
 * side by side, NR = 4 or 8; elements of the left-hand side are broadcast one at a time, so that it needs no packing. A
 * kernel combines a register tile, the addressing of the left-hand side, initial accumulators, and the unrolling of the
 * loop over K.
 */
import { accumulators, addressIn, advance, load, splat32, store, names, times } from './emit.ts';

/** How a kernel addresses the left-hand side. */
interface Left {
  readonly parameters: string;
  readonly prologue?: string;
  /** Code before step `step` of an unrolled iteration; `declare` is `let ` in the first step. */
  before?(step: number, declare: string): string;
  element(row: number, step: number): string;
  /** The element for columns 4 to 7, if they have rows of their own. */
  otherElement?(row: number, step: number): string;
  readonly afterStep?: string;
  /** Code after an iteration of `steps` steps. */
  afterIteration?(steps: number): string;
}

/** MR rows contiguous in k at the addresses `w0`, `w1` ... */
function rows(count: number, parameters: string, prologue: string): Left {
  return {
    ...{ parameters, prologue, element: (row, step) => splat32(`w${row}`, 4 * step) },
    afterIteration: (steps) => advance(names('w', count), 4 * steps),
  };
}

/** Rows whose addresses are the parameters. */
export function rowsAt(count: number): Left {
  return rows(count, `${names('w', count).join(': usize, ')}: usize`, '');
}

/** Rows `stride` bytes apart. */
export function stridedRows(count: number): Left {
  const others = times(count - 1, (row) => `let w${row + 1} = w${row} + stride;`);
  return rows(count, 'w0: usize, stride: usize', others);
}

/** Rows `stride` bytes apart; those from `numRows` on repeat the last one. */
export function clampedRows(count: number): Left {
  const prologue = `
    const last = w + <usize>(min<i32>(numRows, ${count}) - 1) * stride;
    let w0 = w;
    ${times(count - 2, (row) => `let w${row + 1} = min<usize>(last, w + ${row + 1} * stride);`)}
    let w${count - 1} = last;`;
  return rows(count, 'w: usize, stride: usize, numRows: i32', prologue);
}

/** Rows at arbitrary addresses, which are in `list`. */
export function indirectRows(count: number): Left {
  const addresses = times(count, (row) => `let w${row} = ${addressIn('list', row)};`);
  return rows(count, 'list: usize', addresses);
}

/** The transposed matrix `[K, MR]`: MR contiguous numbers for each k, `stride` bytes from one k to the next. */
export const stridedColumns: Left = {
  parameters: 'w: usize, stride: usize',
  element: (row) => splat32('w', 4 * row),
  afterStep: 'w += stride;',
};

/** The transposed matrix with K rows at arbitrary addresses: MR numbers `column` bytes after each address in `list`. */
export const indirectColumns: Left = {
  parameters: 'list: usize, column: usize',
  before: (step, declare) => `${declare}w = ${addressIn('list', step)} + column;`,
  element: (row) => splat32('w', 4 * row),
  afterIteration: (steps) => advance(['list'], 4 * steps),
};

/** `indirectRows` with two lists: columns 0 to 3 use the rows in `lows`, the others those in `highs`. */
export function splitRows(count: number): Left {
  const all = (name: string, list: string): string => times(count, (i) => `let ${name}${i} = ${addressIn(list, i)};`);
  return {
    ...rows(count, 'lows: usize, highs: usize', `${all('w', 'lows')} ${all('u', 'highs')}`),
    otherElement: (row, step) => splat32(`u${row}`, 4 * step),
    afterIteration: (steps) => advance([...names('w', count), ...names('u', count)], 4 * steps),
  };
}

/** `indirectColumns` with a second list, `highs`, for columns 4 to 7. */
const splitColumns: Left = {
  parameters: '',
  before: () => `const w = ${addressIn('list', 0)} + column; const u = ${addressIn('highs', 0)} + column;`,
  element: (row) => splat32('w', 4 * row),
  otherElement: (row) => splat32('u', 4 * row),
};

export interface Tile {
  readonly name: string;
  readonly doc: string;
  readonly rows: number;
  /** Vectors of four columns. */
  readonly vectors: 1 | 2;
  readonly left: Left;
  /** Initial accumulators: zeros; zeros, or the old c if `isAdding`; the old c times a factor for each column. */
  readonly start: 'zero' | 'add' | 'scale';
  /**
   * Steps per iteration. `exits`: the loop may exit between steps, which also keeps compilers from hoisting the loads
   * of later steps and spilling accumulators. `tail`: a single step follows for an odd depth. `whole`: the same exits,
   * which are never taken, because only whole iterations run; single steps follow.
   */
  readonly unroll: { readonly steps: number; readonly form: 'exits' | 'tail' | 'whole' | 'single' };
  readonly prologue?: string;
  /** Other work that is interleaved after a step. */
  beside?(step: number): string;
  /** Advances the addresses of that work after an iteration. */
  readonly advanceBeside?: string;
  /** The last `splits` steps, which `depth` does not include, have separate rows for columns 4 to 7. */
  readonly isSplit?: boolean;
  readonly epilogue?: string;
}

/** Names of accumulators, row by row. */
function sumsOf({ rows: count, vectors }: Tile): readonly string[] {
  const all = names('s', count);
  return vectors === 1 ? all : all.flatMap((name) => names(name, vectors));
}

/** One step of k: NR columns of x times one number of each row, or one for each half of the columns. */
function step(tile: Tile, left: Left, k: number, declare: string): string {
  const { rows: count, vectors } = tile;
  const columns = vectors === 1 ? ['v'] : ['low', 'high'];
  return `
    ${left.before?.(k, declare) ?? ''}
    ${columns.map((name, i) => `${declare}${name} = ${load('x', 16 * (vectors * k + i))};`).join('\n')}
    ${times(count, (row) => {
      const element = left.element(row, k);
      if (vectors === 1) return `s${row} = fma(${element}, v, s${row});`;
      const other = left.otherElement?.(row, k);
      const first = other === undefined ? `${row === 0 ? declare : ''}v = ${element};` : '';
      return `${first}
        s${row}0 = fma(${other === undefined ? 'v' : element}, low, s${row}0);
        s${row}1 = fma(${other ?? 'v'}, high, s${row}1);`;
    })}
    ${left.afterStep ?? ''}`;
}

/** The steps of an iteration, followed by the updates of addresses. */
function iteration(tile: Tile, counter: string): string {
  const { steps, form } = tile.unroll;
  const mayExit = form === 'exits' || form === 'whole';
  return `
    ${times(
      steps,
      (k) => `
        ${step(tile, tile.left, k, k === 0 ? 'let ' : '')}
        ${tile.beside?.(k) ?? ''}
        ${mayExit && k + 1 < steps ? `if (${counter} === ${k + 1}) break;` : ''}`,
    )}
    x += ${16 * tile.vectors * steps};
    ${tile.left.afterIteration?.(steps) ?? ''}
    ${tile.advanceBeside ?? ''}`;
}

function loop(tile: Tile): string {
  const { steps, form } = tile.unroll;
  const single = step(tile, tile.left, 0, 'let ');
  if (form === 'single') return `for (let k = depth; k > 0; k--) { ${iteration(tile, 'k')} }`;
  if (form === 'exits') return `for (let k = depth; k > 0; k -= ${steps}) { ${iteration(tile, 'k')} }`;
  if (form === 'whole') {
    return `for (; depth >= ${steps}; depth -= ${steps}) { ${iteration(tile, 'depth')} }
      for (; depth > 0; depth--, list += 4, x += 32) { ${single} }`;
  }
  return `let k = depth;
    for (; k >= ${steps}; k -= ${steps}) { ${iteration(tile, 'k')} }
    if (k > 0) { ${single} }`;
}

const factors = { 1: ['factor'], 2: ['lowFactor', 'highFactor'] } as const;

function begin(tile: Tile): string {
  const all = sumsOf(tile);
  const each = (make: (old: string, i: number) => string): string =>
    all.map((name, i) => `${name} = ${make(load('c', 16 * i), i)};`).join('\n');
  if (tile.start === 'scale') {
    const scaled = each((old, i) => `f32x4.mul(${old}, ${factors[tile.vectors][i % tile.vectors]})`);
    return scaled.replaceAll(/^/gm, 'let ');
  }
  const zeros = accumulators(all, 'f32x4.splat(0)');
  return tile.start === 'zero' ? zeros : `${zeros} if (isAdding) { ${each((old) => old)} }`;
}

/** Parameters for the initial accumulators. */
function startParameters({ start, vectors }: Tile): readonly string[] {
  if (start === 'scale') return factors[vectors].map((name) => `${name}: v128`);
  return start === 'add' ? ['isAdding: bool'] : [];
}

/** The text of a kernel. */
export function gemm(tile: Tile): string {
  const { name, doc, left, isSplit = false } = tile;
  const parameters = ['c: usize', left.parameters, 'x: usize', 'depth: i32', ...startParameters(tile)];
  if (isSplit) parameters.push('highs: usize', 'splits: i32');
  const splitSteps = `
    for (; splits > 0; splits--, list += 4, highs += 4, x += 32) {
      ${step(tile, splitColumns, 0, 'let ')}
    }`;
  return `
    /** ${doc} */
    export function ${name}(${parameters.join(', ')}): void {
      ${tile.prologue ?? ''}
      ${left.prologue ?? ''}
      ${begin(tile)}
      ${loop(tile)}
      ${isSplit ? splitSteps : ''}
      ${sumsOf(tile)
        .map((sum, i) => store('c', sum, 16 * i))
        .join('\n')}
      ${tile.epilogue ?? ''}
    }`;
}
