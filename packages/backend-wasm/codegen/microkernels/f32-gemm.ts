/**
 * Templates of f32 GEMM microkernels: `c[MR, NR] (+)= w[MR, K] x[K, NR]`. The right-hand side is packed with NR columns side by
 * side, NR = 4 or 8; the left-hand side is read one number at a time, so that it needs no packing. A kernel is put together of
 * the tile, where the left-hand side lies, what accumulators begin with, and how the loop over K is unrolled.
 */
import {
  accumulators,
  addressIn,
  advance,
  block,
  fma,
  kernel,
  load,
  splat32,
  store,
  names,
  times,
  type Lines,
} from './emit.ts';

/** Where a kernel finds the left-hand side. */
interface Left {
  readonly parameters: Lines;
  readonly prologue?: Lines;
  /** Before step `step` of an unrolled iteration; the first one declares with `declare`. */
  before?(step: number, declare: string): Lines;
  element(row: number, step: number): string;
  /** What columns 4 to 7 are multiplied by, where they have rows of their own. */
  otherElement?(row: number, step: number): string;
  readonly afterStep?: Lines;
  /** After an iteration of so many steps. */
  afterIteration?(steps: number): Lines;
}

/** MR rows contiguous in k at the addresses `w0`, `w1` ... */
function rows(count: number, parameters: Lines, prologue: Lines): Left {
  const addresses = names('w', count);
  return {
    parameters,
    prologue,
    element: (row, step) => splat32(`w${row}`, 4 * step),
    afterIteration: (steps) => advance(addresses, 4 * steps),
  };
}

/** Rows whose addresses are the parameters. */
export function rowsAt(count: number): Left {
  return rows(
    count,
    times(count, (row) => `w${row}: usize`),
    [],
  );
}

/** Rows `stride` bytes apart. */
export function stridedRows(count: number): Left {
  const prologue = times(count - 1, (row) => `let w${row + 1} = w${row} + stride;`);
  return rows(count, ['w0: usize', 'stride: usize'], prologue);
}

/** Rows `stride` bytes apart; those from `numRows` on count as the last one. */
export function clampedRows(count: number): Left {
  const prologue = [
    `const last = w + <usize>(min<i32>(numRows, ${count}) - 1) * stride;`,
    'let w0 = w;',
    ...times(count - 2, (row) => `let w${row + 1} = min<usize>(last, w + ${row === 0 ? '' : `${row + 1} * `}stride);`),
    `let w${count - 1} = last;`,
  ];
  return rows(count, ['w: usize', 'stride: usize', 'numRows: i32'], prologue);
}

/** Rows anywhere: `list` holds their addresses. */
export function listedRows(count: number): Left {
  return rows(
    count,
    ['list: usize'],
    times(count, (row) => `let w${row} = ${addressIn('list', row)};`),
  );
}

/** The transposed matrix `[K, MR]`: MR numbers side by side, `stride` bytes from k to k. */
export function stridedColumns(): Left {
  return {
    parameters: ['w: usize', 'stride: usize'],
    element: (row) => splat32('w', 4 * row),
    afterStep: ['w += stride;'],
  };
}

/** The transposed matrix, rows k anywhere: `list` holds their addresses, from which MR numbers lie `column` bytes away. */
export function listedColumns(): Left {
  return {
    parameters: ['list: usize', 'column: usize'],
    before: (step, declare) => [`${declare}w = ${addressIn('list', step)} + column;`],
    element: (row) => splat32('w', 4 * row),
    afterIteration: (steps) => advance(['list'], 4 * steps),
  };
}

/** The same with two lists: columns 0 to 3 have the rows of `lows`, the others those of `highs`. */
export function splitRows(count: number): Left {
  const addresses = [...names('w', count), ...names('u', count)];
  return {
    parameters: ['lows: usize', 'highs: usize'],
    prologue: [
      ...times(count, (row) => `let w${row} = ${addressIn('lows', row)};`),
      ...times(count, (row) => `let u${row} = ${addressIn('highs', row)};`),
    ],
    element: (row, step) => splat32(`w${row}`, 4 * step),
    otherElement: (row, step) => splat32(`u${row}`, 4 * step),
    afterIteration: (steps) => advance(addresses, 4 * steps),
  };
}

/** `listedColumns` with a second list, `highs`, for columns 4 to 7. */
const splitColumns: Left = {
  parameters: [],
  before: () => [`const w = ${addressIn('list', 0)} + column;`, `const u = ${addressIn('highs', 0)} + column;`],
  element: (row) => splat32('w', 4 * row),
  otherElement: (row) => splat32('u', 4 * row),
};

/** What accumulators begin with. */
type Start = 'zero' | 'add' | 'scale';

export interface Tile {
  readonly name: string;
  readonly doc: string;
  readonly rows: number;
  /** Vectors of four columns. */
  readonly vectors: 1 | 2;
  readonly left: Left;
  /** Zeros; zeros, or what is there where `isAdding`; what is there times a factor for each column. */
  readonly start: Start;
  /**
   * Steps of an iteration. `exits`: the loop is left between steps, which also keeps compilers from moving loads of later steps
   * up, where accumulators would spill for want of registers. `tail`: one step follows for an odd depth. `whole`: the same exits,
   * never taken, in whole iterations; single steps follow.
   */
  readonly unroll: { readonly steps: number; readonly form: 'exits' | 'tail' | 'whole' | 'single' };
  readonly prologue?: Lines;
  /** Other work after a step. */
  beside?(step: number): Lines;
  /** After an iteration. */
  readonly advanceBeside?: Lines;
  /** The last `splits` steps, which are not in `depth`, have rows of their own for columns 4 to 7. */
  readonly isSplit?: boolean;
  readonly epilogue?: Lines;
}

const halves = ['low', 'high'] as const;

/** Names of accumulators, row by row. */
function sums({ rows: count, vectors }: Pick<Tile, 'rows' | 'vectors'>): Lines {
  return times(count, (row) => times(vectors, (v) => (vectors === 1 ? `s${row}` : `s${row}${v}`)));
}

/** One step of k: NR columns of x times one number of each row, or one for each half of the columns. */
function step(tile: Tile, left: Left, index: number, isFirst: boolean): Lines {
  const { vectors } = tile;
  const declare = isFirst ? 'let ' : '';
  const columns = vectors === 1 ? ['v'] : halves;
  return [
    ...(left.before?.(index, declare) ?? []),
    ...columns.map((name, v) => `${declare}${name} = ${load('x', 16 * (vectors * index + v))};`),
    ...times(tile.rows, (row) => {
      if (vectors === 1) return `s${row} = ${fma(left.element(row, index), 'v', `s${row}`)};`;
      const { otherElement } = left;
      if (otherElement !== undefined) {
        const elements = [left.element(row, index), otherElement(row, index)] as const;
        return halves.map((half, v) => `s${row}${v} = ${fma(elements[v] as string, half, `s${row}${v}`)};`);
      }
      const element = `${row === 0 ? declare : ''}v = ${left.element(row, index)};`;
      return [element, ...halves.map((half, v) => `s${row}${v} = ${fma('v', half, `s${row}${v}`)};`)];
    }),
    ...(left.afterStep ?? []),
  ];
}

/** The steps of an iteration, and what moves on after it. */
function iteration(tile: Tile, counter: string): Lines {
  const { steps, form } = tile.unroll;
  const mayExit = form === 'exits' || form === 'whole';
  return [
    ...times(steps, (index) => [
      ...step(tile, tile.left, index, index === 0),
      ...(tile.beside?.(index) ?? []),
      ...(mayExit && index + 1 < steps ? [`if (${counter} === ${index + 1}) break;`] : []),
    ]),
    `x += ${16 * tile.vectors * steps};`,
    ...(tile.left.afterIteration?.(steps) ?? []),
    ...(tile.advanceBeside ?? []),
  ];
}

function loop(tile: Tile): Lines {
  const { steps, form } = tile.unroll;
  if (form === 'single') return block('for (let k = depth; k > 0; k--)', iteration(tile, 'k'));
  if (form === 'exits') return block(`for (let k = depth; k > 0; k -= ${steps})`, iteration(tile, 'k'));
  if (form === 'whole') {
    return [
      ...block(`for (; depth >= ${steps}; depth -= ${steps})`, iteration(tile, 'depth')),
      ...block('for (; depth > 0; depth--, list += 4, x += 32)', step(tile, tile.left, 0, true)),
    ];
  }
  return [
    'let k = depth;',
    ...block(`for (; k >= ${steps}; k -= ${steps})`, iteration(tile, 'k')),
    ...block('if (k > 0)', step(tile, tile.left, 0, true)),
  ];
}

function splitSteps(tile: Tile): Lines {
  return block('for (; splits > 0; splits--, list += 4, highs += 4, x += 32)', step(tile, splitColumns, 0, true));
}

function begin(tile: Tile): Lines {
  const all = sums(tile);
  const old = (index: number): string => load('c', 16 * index);
  if (tile.start === 'scale') {
    const factor = tile.vectors === 1 ? ['factor'] : ['lowFactor', 'highFactor'];
    return all.map((name, i) => `let ${name} = f32x4.mul(${old(i)}, ${factor[i % tile.vectors]});`);
  }
  const zeros = accumulators(all, 'f32x4.splat(0)');
  if (tile.start === 'zero') return zeros;
  return [
    ...zeros,
    ...block(
      'if (isAdding)',
      all.map((name, i) => `${name} = ${old(i)};`),
    ),
  ];
}

const startParameters: Record<Start, (vectors: number) => Lines> = {
  zero: () => [],
  add: () => ['isAdding: bool'],
  scale: (vectors) => (vectors === 1 ? ['factor: v128'] : ['lowFactor: v128', 'highFactor: v128']),
};

/** The parameters of a tile: output, left-hand side, right-hand side, depth, and what the variant needs. */
function parametersOf({ left, start, vectors, isSplit }: Tile): Lines {
  const split = isSplit === true ? ['highs: usize', 'splits: i32'] : [];
  return ['c: usize', ...left.parameters, 'x: usize', 'depth: i32', ...startParameters[start](vectors), ...split];
}

/** The lines of a kernel. */
export function gemm(tile: Tile): Lines {
  return kernel({
    doc: tile.doc,
    name: tile.name,
    parameters: parametersOf(tile),
    body: [
      ...(tile.prologue ?? []),
      ...(tile.left.prologue ?? []),
      ...begin(tile),
      ...loop(tile),
      ...(tile.isSplit === true ? splitSteps(tile) : []),
      ...sums(tile).map((name, i) => store('c', name, 16 * i)),
      ...(tile.epilogue ?? []),
    ],
  });
}
