/** The typed-array door: one layer of one sequence with its cache, under any pair of policies. */
import { ArgumentError, type DType, ShapeError, Tensor3 } from '@winnow/tensor';
import type { AttendOptions, AttentionFamily, FamilyOptions } from './core/family.js';
import { KvStore } from './core/kv-store.js';
import { rowsOf } from './core/rows.js';
import { DenseAttention } from './families/dense.js';
import { H2oPrefillAttention } from './families/h2o-prefill.js';
import { OracleTopKAttention } from './families/oracle-top-k.js';
import { PageTopKAttention } from './families/page-top-k.js';
import { SparqAttention } from './families/sparq.js';
import { StreamingAttention, type Rotate } from './families/streaming.js';
import { formatPolicy, parsePolicy } from './policy/policy-text.js';
import { supportsPhase } from './policy/policy-fields.js';
import type { AttentionPolicy } from './policy/policy-types.js';
import { SubquadraticAttention } from './subquadratic/subquadratic.js';

/** Options of `createFamily` beyond those of every family. */
export interface CreateFamilyOptions extends FamilyOptions {
  /** Default: true. Bidirectional: dense, subquadratic and oracle-topk only. */
  readonly causal?: boolean | undefined;
  /** Only `streaming` uses it, see `StreamingAttention`. */
  readonly rotate?: Rotate | undefined;
  /** Only `subquadratic` uses it: tile of the flash form. */
  readonly flashTile?: number | undefined;
  /** Only `sparq` with `layout=both` uses it: keep the transposed keys as f16. */
  readonly halfColumns?: boolean | undefined;
  /** Hears what had to be changed about a policy. */
  readonly notice?: ((text: string) => void) | undefined;
}

/** The family of a policy over keys and values. @throws {ArgumentError} for a bidirectional family that is causal only */
export function createFamily(policy: AttentionPolicy, options: CreateFamilyOptions): AttentionFamily {
  const { causal = true } = options;
  if (!causal && !['dense', 'subquadratic', 'oracle-topk'].includes(policy.kind)) {
    const expected = 'dense | subquadratic | oracle-topk';
    throw new ArgumentError({ argument: 'bidirectional attention', expected, actual: policy.kind });
  }
  switch (policy.kind) {
    case 'dense':
      return new DenseAttention(options);
    case 'subquadratic':
      return new SubquadraticAttention({ ...options, policy, causal });
    case 'sparq':
      return new SparqAttention({ ...options, policy });
    case 'h2o-prefill':
      return new H2oPrefillAttention({ ...options, policy });
    case 'streaming':
      return new StreamingAttention({ ...options, policy });
    case 'page-topk':
      return new PageTopKAttention({ ...options, policy });
    case 'oracle-topk':
      return new OracleTopKAttention({ ...options, policy });
  }
}

/** Options of `attend`. */
export interface OneShotOptions extends AttendOptions, Omit<CreateFamilyOptions, 'kv' | 'numHeads'> {}

/** Result of `attend`. */
export interface OneShotResult {
  /** [tokens, numHeads, valueDim] */
  readonly out: Tensor3;
  /** Pairs of query and key visited, over all query heads. */
  readonly pairs: number;
  /** Pairs that dense attention would have visited. */
  readonly densePairs: number;
  /** `pairs / densePairs` */
  readonly density: number;
}

/**
 * Attention of queries `[tokens, numHeads, headDim]` that are the last of the `k.seqLen` positions, in one call. Query
 * head h uses KV head `floor(h / (numHeads / numKvHeads))`: as many, grouped and single KV heads alike.
 * @param policy object or text, such as `subquadratic:window=64`
 * @throws {ArgumentError | ShapeError}
 */
export function attend(
  policy: AttentionPolicy | string,
  q: Tensor3,
  k: Tensor3,
  v: Tensor3,
  options: OneShotOptions = {},
): OneShotResult {
  if (v.seqLen !== k.seqLen || q.seqLen > k.seqLen) {
    const actual = `${q.seqLen} queries, ${v.seqLen} values`;
    throw new ShapeError({ op: 'attend', rule: 'tokens', expected: `at most ${k.seqLen}, ${k.seqLen}`, actual });
  }
  const kv = { keys: rowsOf(k), values: rowsOf(v), length: k.seqLen };
  const parsed = typeof policy === 'string' ? parsePolicy(policy) : policy;
  const family = createFamily(parsed, { ...options, kv, numHeads: q.numHeads });
  const out = Tensor3.create(q.seqLen, q.numHeads, v.headDim);
  const begin = k.seqLen - q.seqLen;
  family.attend(q, begin, out, options);
  const { seqLen } = q;
  const rowPairs = options.causal === false ? seqLen * k.seqLen : seqLen * begin + (seqLen * (seqLen + 1)) / 2;
  const densePairs = rowPairs * q.numHeads;
  return { out, pairs: family.pairs, densePairs, density: family.pairs / densePairs };
}

/** Options of `AttentionLayer`. */
export interface AttentionLayerOptions {
  /** Policies, as objects or text. Default: dense. */
  readonly prefill?: AttentionPolicy | string;
  readonly decode?: AttentionPolicy | string;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Default: `headDim`. */
  readonly valueDim?: number;
  /** Positions that fit. Not needed where both phases stream: a ring of `sinks + window` is kept then. */
  readonly capacity?: number;
  /** Default: f32. */
  readonly keyDType?: DType;
  /** Default: f32. */
  readonly valueDType?: DType;
  readonly scale?: number;
  readonly rotate?: Rotate;
  readonly notice?: (text: string) => void;
}

/** What a layer has done. */
export interface AttentionLayerReport {
  readonly prefillPairs: number;
  readonly decodePairs: number;
  /** What dense attention would have visited in both phases. */
  readonly densePairs: number;
  /** Visited by dense pairs. */
  readonly density: number;
  readonly cacheBytes: number;
}

/** A cache with one policy for prompts and one for single tokens. Families can be swapped by changing the text. */
export class AttentionLayer {
  readonly prefillFamily: AttentionFamily;
  readonly decodeFamily: AttentionFamily;
  readonly store: KvStore;
  #densePairs = 0;
  readonly #numHeads: number;

  /** @throws {ArgumentError | ShapeError | DTypeError} */
  constructor(options: AttentionLayerOptions) {
    const { numHeads, numKvHeads, headDim, scale, rotate, notice } = options;
    const prefill = policyOf(options.prefill, 'prefill');
    const decode = policyOf(options.decode, 'decode');
    const ring = prefill.kind === 'streaming' && decode.kind === 'streaming' ? ringOf(prefill, decode) : undefined;
    const capacity = ring?.capacity ?? options.capacity;
    if (capacity === undefined) {
      const expected = 'the number of positions that shall fit';
      throw new ArgumentError({ argument: 'AttentionLayer: capacity', expected, actual: 'nothing' });
    }
    this.#numHeads = numHeads;
    this.store = new KvStore({
      capacity,
      numKvHeads,
      headDim,
      ...(options.valueDim === undefined ? {} : { valueDim: options.valueDim }),
      ...(options.keyDType === undefined ? {} : { keyDType: options.keyDType }),
      ...(options.valueDType === undefined ? {} : { valueDType: options.valueDType }),
      ...(ring === undefined ? {} : { ringSinks: ring.ringSinks }),
    });
    const halfColumns = (options.keyDType ?? 'f32') !== 'f32';
    const familyOptions = { kv: this.store, numHeads, scale, rotate, notice, halfColumns };
    this.prefillFamily = createFamily(prefill, familyOptions);
    const isOne = formatPolicy(prefill) === formatPolicy(decode);
    this.decodeFamily = isOne ? this.prefillFamily : createFamily(decode, familyOptions);
  }

  /** Positions so far. */
  get length(): number {
    return this.store.length;
  }

  /** Appends the keys and values of a prompt, or of its next part, and attends with its queries. */
  prefill(q: Tensor3, k: Tensor3, v: Tensor3, options: AttendOptions & { readonly out?: Tensor3 } = {}): Tensor3 {
    return this.#run(this.prefillFamily, q, k, v, options);
  }

  /** Appends one token, or a few drafts, and attends under the decode policy. `out` saves an allocation. */
  decode(q: Tensor3, k: Tensor3, v: Tensor3, options: AttendOptions & { readonly out?: Tensor3 } = {}): Tensor3 {
    return this.#run(this.decodeFamily, q, k, v, options);
  }

  /** Forgets positions from `length` on (rejected drafts). @throws {ArgumentError} where a family or a ring can't */
  truncate(length: number): void {
    this.store.truncate(length);
    this.prefillFamily.truncated?.(length);
    if (this.decodeFamily !== this.prefillFamily) this.decodeFamily.truncated?.(length);
  }

  report(): AttentionLayerReport {
    const prefillPairs = this.prefillFamily.pairs;
    const decodePairs = this.decodeFamily === this.prefillFamily ? 0 : this.decodeFamily.pairs;
    const density = this.#densePairs === 0 ? 1 : (prefillPairs + decodePairs) / this.#densePairs;
    return { prefillPairs, decodePairs, densePairs: this.#densePairs, density, cacheBytes: this.store.sizeBytes };
  }

  #run(
    family: AttentionFamily,
    q: Tensor3,
    k: Tensor3,
    v: Tensor3,
    {
      out = Tensor3.create(q.seqLen, q.numHeads, this.store.values.dim),
      ...options
    }: AttendOptions & { out?: Tensor3 },
  ): Tensor3 {
    if (k.seqLen !== q.seqLen) {
      const expected = String(q.seqLen);
      throw new ShapeError({ op: 'AttentionLayer', rule: 'tokens of keys', expected, actual: String(k.seqLen) });
    }
    if (options.states !== undefined && this.store.ringSinks !== undefined && q.seqLen > 1) {
      const actual = `${q.seqLen} tokens`;
      throw new ArgumentError({ argument: 'AttentionLayer: states of a ring', expected: '1 token', actual });
    }
    // In a ring a later token may take the place of one that an earlier query still sees.
    const step = this.store.ringSinks === undefined ? q.seqLen : 1;
    for (let at = 0; at < q.seqLen; at += step) {
      const begin = this.store.length;
      this.store.append(k, v, at, at + step);
      this.prefillFamily.appended?.();
      if (this.decodeFamily !== this.prefillFamily) this.decodeFamily.appended?.();
      family.attend(q.slice(at, at + step), begin, out.slice(at, at + step), options);
      this.#densePairs += (step * begin + (step * (step + 1)) / 2) * this.#numHeads;
    }
    return out;
  }
}

function policyOf(given: AttentionPolicy | string | undefined, phase: 'prefill' | 'decode'): AttentionPolicy {
  const policy =
    given === undefined ? { kind: 'dense' as const } : typeof given === 'string' ? parsePolicy(given, phase) : given;
  if (supportsPhase(policy.kind, phase)) return policy;
  throw new ArgumentError({ argument: phase, expected: `a policy that can ${phase}`, actual: policy.kind });
}

function ringOf(
  a: { readonly sinks: number; readonly window: number },
  b: { readonly sinks: number; readonly window: number },
): { readonly capacity: number; readonly ringSinks: number } {
  const ringSinks = Math.max(a.sinks, b.sinks);
  return { capacity: ringSinks + Math.max(a.window, b.window), ringSinks };
}
