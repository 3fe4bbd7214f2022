/** Attention of each query to keys that the caller chooses, with partial states that can be merged with other keys. */
import {
  BoundProgram,
  createReferenceBackend,
  type Backend,
  type PartialStates,
  type ProgramBuilder,
} from '@winnow/ops';
import { ArgumentError, ShapeError, Tensor3 } from '@winnow/tensor';
import { checkTensor } from './shape.js';

/** Options of `attendKeys`. */
export interface AttendKeysOptions {
  /** Default: the reference backend, which is slow. */
  readonly backend?: Backend | undefined;
  /** Factor of `q . k`. Default: `1 / sqrt(headDim)`. */
  readonly scale?: number | undefined;
}

/** Result of `attendKeys`. */
export interface AttendKeysResult {
  /** `[tokens, numHeads, valueDim]`; zeros for a query without keys. */
  readonly out: Tensor3;
  /** Softmax state of query t and head h in row `t * numHeads + h`: see `mergeState` of `@winnow/ops`. */
  readonly states: PartialStates;
}

/** Maximum number of block table words per run. */
const maxTableWords = 2 ** 18;

/**
 * Attention of every query head to chosen rows of `k` and `v`. The rows form a cache with one slot per block; the
 * chosen ones are the block table of a sequence with only this query head.
 * @param keysOf the rows of the keys of a query and a query head, without duplicates
 * @throws {ShapeError | ArgumentError} for tensors that do not fit, and for rows out of range
 */
export async function attendKeys(
  q: Tensor3,
  k: Tensor3,
  v: Tensor3,
  keysOf: (query: number, head: number) => ArrayLike<number>,
  options: AttendKeysOptions = {},
): Promise<AttendKeysResult> {
  const { backend = createReferenceBackend(), scale = 1 / Math.sqrt(q.headDim) } = options;
  if (q.numHeads % k.numHeads !== 0 || q.headDim !== k.headDim) {
    const expected = `a multiple of ${k.numHeads} heads of ${k.headDim}`;
    throw new ShapeError({ op: 'attendKeys', rule: 'queries', expected, actual: `[${q.shape.join(', ')}]` });
  }
  checkTensor('values', v, k.seqLen, k.numHeads, v.headDim);
  const lists = listKeys(q, k, keysOf);
  const maxKeys = lists.reduce((most, { length }) => Math.max(most, length), 1);
  const maxRows = Math.max(1, Math.min(lists.length, Math.floor(maxTableWords / maxKeys)));
  const numRows = lists.length;
  const states = {
    m: new Float32Array(numRows),
    l: new Float32Array(numRows),
    o: new Float32Array(numRows * v.headDim),
  };
  const out = Tensor3.create(q.seqLen, q.numHeads, v.headDim);
  const build = (b: ProgramBuilder): void => buildProgram(b, { q, k, v, scale, maxRows, maxKeys });
  await using program = await BoundProgram.prepare({ backend, symbols: { T: maxRows } }, build);
  await program.write('k', k.data);
  await program.write('v', v.data);
  const ofPosition = Int32Array.from({ length: k.seqLen * k.numHeads }, (_, row) => Math.floor(row / k.numHeads));
  await program.write('slotPositions', ofPosition);
  const gathered = program.scalars.slot('sequences');
  gathered.forEach((_, row) => (gathered[row] = row));
  program.scalars.slot('positions').fill(k.seqLen); // after every key
  for (let first = 0; first < numRows; first += maxRows) {
    const end = Math.min(numRows, first + maxRows);
    await runRows(program, q, lists.slice(first, end), first, maxKeys);
    const { m, l, o } = states;
    await program.read('m', m.subarray(first, end));
    await program.read('l', l.subarray(first, end));
    await program.read('o', o.subarray(first * v.headDim, end * v.headDim));
    await program.read('y', out.data.subarray(first * v.headDim, end * v.headDim));
  }
  return { out, states };
}

/** Blocks of the keys of each query head: row `position * numKvHeads + kvHead`. */
function listKeys(q: Tensor3, k: Tensor3, keysOf: (query: number, head: number) => ArrayLike<number>): Int32Array[] {
  const groupSize = q.numHeads / k.numHeads;
  return Array.from({ length: q.seqLen * q.numHeads }, (_, row) => {
    const head = row % q.numHeads;
    return Int32Array.from(keysOf(Math.floor(row / q.numHeads), head), (position) => {
      if (!(Number.isInteger(position) && position >= 0 && position < k.seqLen)) {
        const expected = `rows below ${k.seqLen}`;
        throw new ArgumentError({ argument: 'attendKeys: keysOf', expected, actual: String(position) });
      }
      return position * k.numHeads + Math.floor(head / groupSize);
    });
  });
}

interface KeyProgram {
  readonly q: Tensor3;
  readonly k: Tensor3;
  readonly v: Tensor3;
  readonly scale: number;
  readonly maxRows: number;
  readonly maxKeys: number;
}

function buildProgram(b: ProgramBuilder, { q, k, v, scale, maxRows, maxKeys }: KeyProgram): void {
  const numBlocks = k.seqLen * k.numHeads;
  const rows = b.scalar('rows', ['T']);
  const x = b.external('q', 'kv', 'f32', [maxRows, q.headDim]);
  const inputs = {
    q: b.reshape(b.activation('gather-rows', { x, rows }), ['T', 1, q.headDim]),
    positions: b.scalar('positions', ['T']),
    sequences: b.scalar('sequences', ['T']),
    keys: b.external('k', 'kv', 'f32', [numBlocks, 1, 1, k.headDim]),
    values: b.external('v', 'kv', 'f32', [numBlocks, 1, 1, v.headDim]),
    slotPositions: b.external('slotPositions', 'kv', 'i32', [numBlocks, 1]),
    blockTable: b.scalar('blockTable', [maxRows, maxKeys]),
    contextLengths: b.scalar('contextLengths', [maxRows]),
  };
  const { m, l, o } = b.append('attention-partial', inputs, { scale });
  if (m === undefined || l === undefined || o === undefined) return;
  for (const [name, tensor] of Object.entries({ m, l, o })) b.output(name, tensor);
  b.output('y', b.activation('attention-finish', { l, o }));
}

async function runRows(
  program: BoundProgram,
  q: Tensor3,
  lists: readonly Int32Array[],
  first: number,
  maxKeys: number,
): Promise<void> {
  const { scalars } = program;
  scalars.bind('T', lists.length);
  const [rows, table, lengths] = [scalars.slot('rows'), scalars.slot('blockTable'), scalars.slot('contextLengths')];
  lengths.fill(0);
  lists.forEach((list, row) => {
    rows[row] = row;
    table.set(list, row * maxKeys);
    lengths[row] = list.length;
  });
  await program.write('q', q.data.subarray(first * q.headDim, (first + lists.length) * q.headDim));
  await program.run();
}
