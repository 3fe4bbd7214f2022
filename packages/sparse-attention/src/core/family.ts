/** The contract of every attention family, so that callers can swap them. */
import type { PartialStates } from '@winnow/ops';
import { ArgumentError, ShapeError, type Tensor3 } from '@winnow/tensor';
import type { AttentionPolicy } from '../policy/policy-types.js';
import type { KvRows } from './rows.js';

/** Hears which keys each query visits. The arrays are reused: copy what shall stay. */
export interface VisitSink {
  /**
   * The query at position `query` of the heads `[firstHead, firstHead + numHeads)` attended to the first `numTokens` of
   * `tokens` and to the means of the first `numBlocks` of `blocks`.
   */
  visit(
    query: number,
    firstHead: number,
    numHeads: number,
    tokens: Int32Array,
    numTokens: number,
    blocks: Int32Array,
    numBlocks: number,
  ): void;
}

/** What `attend` may return besides the output. */
export interface AttendOptions {
  /** Hears which keys were visited. */
  readonly visits?: VisitSink | undefined;
  /** Softmax weight of every visited token is added: `mass[kvHead * massStride + position]`, summed over query heads. */
  readonly mass?: Float32Array | undefined;
  /** Positions per KV head in `mass`. Default: `mass.length / numKvHeads`. */
  readonly massStride?: number | undefined;
  /** Partial state of query t and head h in row `t * numHeads + h`, for merging with other keys. */
  readonly states?: PartialStates | undefined;
}

/** One family over the keys and values of one layer and sequence. */
export interface AttentionFamily {
  readonly policy: AttentionPolicy;
  /** To be called after rows were appended: the side data (landmarks, boxes, columns) follow. */
  appended?(): void;
  /** To be called after the rows from `length` on were forgotten and before others take their place: they may be read. */
  truncated?(length: number): void;
  /**
   * Attention of the queries `[tokens, numHeads, headDim]` at positions `begin, begin + 1, ...`, whose keys and values
   * are there already, into `out` `[tokens, numHeads, valueDim]`. Pairs of query and key are counted per KV head.
   */
  attend(q: Tensor3, begin: number, out: Tensor3, options?: AttendOptions): void;
  /** Pairs of query and key visited so far, summed over query heads. */
  readonly pairs: number;
}

/** What every family is built from. */
export interface FamilyOptions {
  readonly kv: KvRows;
  /** Query heads, a multiple of the KV heads. Query head h reads KV head `floor(h / (numHeads / numKvHeads))`. */
  readonly numHeads: number;
  /** Factor of `q . k`. Default: `1 / sqrt(headDim)`. */
  readonly scale?: number | undefined;
}

/** Derived sizes of a family. */
export interface FamilyShape {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly groupSize: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly scale: number;
}

/** @throws {ShapeError} unless the query heads are a multiple of the KV heads */
export function familyShape({ kv, numHeads, scale }: FamilyOptions): FamilyShape {
  const { numHeads: numKvHeads, dim: headDim } = kv.keys;
  if (!Number.isSafeInteger(numHeads) || numHeads < 1 || numHeads % numKvHeads !== 0) {
    const expected = `a multiple of ${numKvHeads} KV heads`;
    throw new ShapeError({ op: 'attention', rule: 'query heads', expected, actual: String(numHeads) });
  }
  if (kv.values.numHeads !== numKvHeads) {
    const actual = String(kv.values.numHeads);
    throw new ShapeError({ op: 'attention', rule: 'heads of values', expected: String(numKvHeads), actual });
  }
  return {
    numHeads,
    numKvHeads,
    groupSize: numHeads / numKvHeads,
    headDim,
    valueDim: kv.values.dim,
    scale: scale ?? 1 / Math.sqrt(headDim),
  };
}

/** Validates one call of `attend`. @throws {ShapeError | ArgumentError} */
export function checkAttend(
  shape: FamilyShape,
  kv: KvRows,
  q: Tensor3,
  begin: number,
  out: Tensor3,
  { mass, massStride, states }: AttendOptions,
): void {
  const { numHeads, headDim, valueDim, numKvHeads } = shape;
  const refuse = (rule: string, expected: string, actual: string): never => {
    throw new ShapeError({ op: 'attention', rule, expected, actual });
  };
  if (q.numHeads !== numHeads || q.headDim !== headDim) {
    refuse('queries', `[tokens, ${numHeads}, ${headDim}]`, `[${q.shape.join(', ')}]`);
  }
  if (out.seqLen !== q.seqLen || out.numHeads !== numHeads || out.headDim !== valueDim) {
    refuse('output', `[${q.seqLen}, ${numHeads}, ${valueDim}]`, `[${out.shape.join(', ')}]`);
  }
  if (!Number.isSafeInteger(begin) || begin < 0 || begin + q.seqLen > kv.length) {
    const expected = `positions within the ${kv.length} tokens that are there`;
    throw new ArgumentError({ argument: 'attend', expected, actual: `[${begin}, ${begin + q.seqLen})` });
  }
  if (mass !== undefined) {
    const stride = massStride ?? Math.floor(mass.length / numKvHeads);
    const isBig = stride >= begin + q.seqLen && mass.length >= stride * numKvHeads;
    if (!isBig) refuse('mass', `[${numKvHeads}, at least ${begin + q.seqLen}]`, `${mass.length} values`);
  }
  const numRows = q.seqLen * numHeads;
  if (states !== undefined && (states.m.length < numRows || states.o.length < numRows * valueDim)) {
    refuse('states', `${numRows} rows of ${valueDim}`, `${states.m.length} rows, ${states.o.length} values`);
  }
}

const noBlocks = new Int32Array(0);

/** Tells what a group visited, when somebody listens. */
export function reportVisit(
  sink: VisitSink | undefined,
  query: number,
  firstHead: number,
  numHeads: number,
  tokens: Int32Array,
  numTokens: number,
  blocks: Int32Array = noBlocks,
  numBlocks = 0,
): void {
  sink?.visit(query, firstHead, numHeads, tokens, numTokens, blocks, numBlocks);
}
