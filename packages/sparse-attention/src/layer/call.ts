/** One call of a layer: runs its queries in pieces and collects their results. */
import type { BoundProgram } from '@winnow/ops';
import { ShapeError, Tensor3 } from '@winnow/tensor';
import { lastSinkPosition } from '../lowering/lower-policy.js';
import { deltaOf } from '../policy/fields.js';
import type { AttentionPolicy } from '../policy/kinds.js';
import type { AttendOptions, AttentionResult } from './options.js';
import { queryInput, type AttendVariant, type LayerPrograms } from './programs.js';
import { checkTensor, type LayerShape } from './shape.js';
import type { SlotMap } from './slot-map.js';
import { choosesPerHead, chosenKeys, isPositional, positionalKeys } from './visited-keys.js';

/**
 * Rotates the head vector at `source[offset...]` for a position into `out[outOffset...]`, in the same way as the keys.
 */
export type Rotate = (
  source: Float32Array,
  offset: number,
  position: number,
  out: Float32Array,
  outOffset: number,
) => void;

/** Shared by all calls of a layer. */
export interface CallContext {
  readonly shape: LayerShape;
  readonly programs: LayerPrograms;
  readonly slots: SlotMap;
  readonly policy: AttentionPolicy;
  readonly causal: boolean;
  readonly rotate: Rotate | undefined;
}

/** Keys `[tokens, numKvHeads, headDim]` and values of new tokens. */
export interface NewTokens {
  readonly k: Tensor3;
  readonly v: Tensor3;
}

/**
 * Sets up the next run of a program to store the tokens `[begin, end)` at the next positions. @throws {CapacityError}
 */
export async function storeTokens(
  program: BoundProgram,
  slots: SlotMap,
  { k, v }: NewTokens,
  begin: number,
  end: number,
): Promise<void> {
  const first = slots.length;
  slots.append(end - begin);
  const words = program.scalars.slot('slots');
  for (let t = 0; t < end - begin; t++) words[t] = slots.slotOf(first + t);
  await program.write('k', k.slice(begin, end).data);
  await program.write('v', v.slice(begin, end).data);
}

/** Maximum number of probabilities per run. */
const maxProbabilities = 2 ** 22;

export class AttendCall {
  readonly #context: CallContext;
  readonly #q: Tensor3;
  readonly #begin: number;
  readonly #options: AttendOptions;
  readonly #newTokens: NewTokens | undefined;
  readonly #variant: AttendVariant;
  readonly #out: Tensor3;
  readonly #rows: {
    certificate?: Float32Array;
    errorBound?: Float32Array;
    pages?: Int32Array;
    alpha?: Float32Array;
    errorEstimate?: Float32Array;
  } = {};
  #pairs = 0;

  /**
   * @param newTokens keys and values of the queries, unless they are already in the cache
   * @throws {ShapeError} for tensors of other shapes
   */
  constructor(context: CallContext, q: Tensor3, begin: number, options: AttendOptions, newTokens?: NewTokens) {
    const { shape, policy } = context;
    const { numHeads, numKvHeads, headDim, valueDim } = shape;
    const { out = Tensor3.create(q.seqLen, numHeads, valueDim) } = options;
    checkTensor('queries', q, q.seqLen, numHeads, headDim);
    checkTensor('output', out, q.seqLen, numHeads, valueDim);
    checkMass(options, shape, begin + q.seqLen);
    this.#context = context;
    this.#q = q;
    this.#begin = begin;
    this.#options = options;
    this.#newTokens = newTokens;
    this.#out = out;
    this.#variant = variantOf(context, options);
    if (policy.kind === 'sparq') this.#rows.alpha = new Float32Array(q.seqLen * numHeads);
    if (policy.kind === 'verified-topk') this.#rows.errorEstimate = new Float32Array(q.seqLen * numHeads);
    if (policy.kind === 'page-topk') {
      this.#rows.certificate = new Float32Array(q.seqLen * numHeads);
      this.#rows.errorBound = new Float32Array(q.seqLen * numHeads);
      this.#rows.pages = new Int32Array(q.seqLen * numKvHeads);
    }
  }

  result(): AttentionResult {
    return { out: this.#out, pairs: this.#pairs, ...this.#rows };
  }

  /**
   * Stores the new tokens `[first, end)` of the call and attends with their queries. @param stateFrom state to continue
   * from, -1 for a new one
   */
  async run(first: number, end: number, stateFrom = -1): Promise<void> {
    const { maxTokens, numHeads } = this.#variant;
    const program = await this.#context.programs.attend(this.#variant);
    const numRuns = this.#context.shape.numHeads / numHeads;
    for (let at = first; at < end; at += maxTokens) {
      const count = Math.min(maxTokens, end - at);
      program.scalars.slot('slots').fill(-1);
      if (this.#newTokens !== undefined) {
        await storeTokens(program, this.#context.slots, this.#newTokens, at, at + count);
      }
      for (let run = 0; run < numRuns; run++) {
        await this.#writeQueries(program, at, count, run);
        this.#fillScalars(program, at, count, at === first ? stateFrom : 0);
        await program.run(this.#options.signal === undefined ? {} : { signal: this.#options.signal });
        program.scalars.slot('slots').fill(-1); // they are already stored
        await this.#readRows(program, at, count, run);
        await this.#readPairs(program, at, count);
        if (this.#variant.mass) await this.#readMass(program, at, count, run);
      }
      this.#reportPositional(at, count);
    }
  }

  /** With one query head per KV head and run, run `run` has the heads `run`, `groupSize + run`, ... */
  #headOf(localHead: number, run: number): number {
    const { numHeads, groupSize } = this.#context.shape;
    return this.#variant.numHeads === numHeads ? localHead : localHead * groupSize + run;
  }

  async #writeQueries(program: BoundProgram, first: number, count: number, run: number): Promise<void> {
    const { shape, policy, rotate } = this.#context;
    const { numHeads, hasSinkQueries } = this.#variant;
    const { headDim } = shape;
    const name = queryInput(numHeads);
    const isRotated = policy.kind === 'streaming' && rotate !== undefined;
    const begin = first * shape.numHeads * headDim;
    const given = this.#q.data.subarray(begin, begin + count * shape.numHeads * headDim);
    if (isRotated) {
      const limit = hasSinkQueries ? lastSinkPosition(policy) : 0;
      await program.write(name, this.#rotated(given, first, count, rotate, Infinity));
      if (hasSinkQueries) await program.write('sinkQ', this.#rotated(given, first, count, rotate, limit));
      return;
    }
    if (numHeads === shape.numHeads) return program.write(name, given);
    const chosen = new Float32Array(count * numHeads * headDim);
    this.#eachHead(count, run, (row, fullRow) => {
      chosen.set(given.subarray(fullRow * headDim, (fullRow + 1) * headDim), row * headDim);
    });
    return program.write(name, chosen);
  }

  /** Visits the rows of a run and the corresponding rows among all heads, both from the first token of the run on. */
  #eachHead(count: number, run: number, visit: (row: number, fullRow: number) => void): void {
    const { numHeads } = this.#variant;
    for (let t = 0; t < count; t++) {
      for (let head = 0; head < numHeads; head++) {
        visit(t * numHeads + head, t * this.#context.shape.numHeads + this.#headOf(head, run));
      }
    }
  }

  #rotated(source: Float32Array, first: number, count: number, rotate: Rotate, limit: number): Float32Array {
    const { numHeads, headDim } = this.#context.shape;
    const rotated = new Float32Array(source.length);
    for (let row = 0; row < count * numHeads; row++) {
      const position = this.#begin + first + Math.floor(row / numHeads);
      rotate(source, row * headDim, Math.min(position, limit), rotated, row * headDim);
    }
    return rotated;
  }

  #fillScalars({ scalars }: BoundProgram, first: number, count: number, stateFrom: number): void {
    const { slots, policy } = this.#context;
    scalars.bind('T', count);
    const positions = scalars.slot('positions');
    for (let t = 0; t < count; t++) positions[t] = this.#begin + first + t;
    scalars.slot('contextLengths')[0] = slots.numSlots;
    scalars.slot('blockTable').forEach((_, block, table) => (table[block] = block));
    if (policy.kind === 'h2o-prefill' || deltaOf(policy) > 0) scalars.slot('stateFrom')[0] = stateFrom;
  }

  async #readRows(program: BoundProgram, first: number, count: number, run: number): Promise<void> {
    const { numHeads, numKvHeads, valueDim } = this.#context.shape;
    const { certificate, errorBound, pages, alpha, errorEstimate } = this.#rows;
    await this.#readHeads(program, 'y', this.#out.data, valueDim, first, count, run);
    if (alpha !== undefined) await this.#readHeads(program, 'alpha', alpha, 1, first, count, run);
    if (errorEstimate !== undefined)
      await this.#readHeads(program, 'errorEstimate', errorEstimate, 1, first, count, run);
    if (certificate === undefined || errorBound === undefined || pages === undefined) return;
    const [begin, end] = [first * numHeads, (first + count) * numHeads];
    await program.read('certificate', certificate.subarray(begin, end));
    await program.read('errorBound', errorBound.subarray(begin, end));
    await program.read('pages', pages.subarray(first * numKvHeads, (first + count) * numKvHeads));
  }

  /** Reads an output with `dim` numbers per token and query head. */
  async #readHeads(
    program: BoundProgram,
    name: string,
    target: Float32Array,
    dim: number,
    first: number,
    count: number,
    run: number,
  ): Promise<void> {
    const { numHeads } = this.#context.shape;
    const rows = target.subarray(first * numHeads * dim, (first + count) * numHeads * dim);
    if (this.#variant.numHeads === numHeads) return program.read(name, rows);
    const chosen = new Float32Array(count * this.#variant.numHeads * dim);
    await program.read(name, chosen);
    this.#eachHead(count, run, (row, fullRow) => rows.set(chosen.subarray(row * dim, (row + 1) * dim), fullRow * dim));
  }

  async #readPairs(program: BoundProgram, first: number, count: number): Promise<void> {
    const { policy, shape, causal, slots } = this.#context;
    const { numHeads } = this.#variant;
    if (policy.kind === 'dense') {
      this.#pairs += densePairs(this.#begin + first, count, causal ? undefined : slots.length) * numHeads;
      return;
    }
    const isPerKvHead = ['page-topk', 'verified-topk', 'h2o-prefill'].includes(policy.kind);
    const pairs = new Int32Array(count * (isPerKvHead ? shape.numKvHeads : 1));
    await program.read('pairs', pairs);
    this.#pairs += pairs.reduce((sum, x) => sum + x, 0) * (isPerKvHead ? shape.groupSize : numHeads);
    if (deltaOf(policy) === 0) return;
    const corrections = new Int32Array(count);
    await program.read('densePairs', corrections);
    this.#pairs += corrections.reduce((sum, x) => sum + x, 0) * numHeads;
  }

  /**
   * Probabilities `[count, numKvHeads, slots]`; of dense attention their sum over the tokens, `[1, numKvHeads, slots]`.
   */
  async #readMass(program: BoundProgram, first: number, count: number, run: number): Promise<void> {
    const { policy, shape, causal, slots } = this.#context;
    const { numKvHeads, numBlocks, blockSize } = shape;
    const numSlots = numBlocks * blockSize;
    const isSum = policy.kind === 'dense';
    const probabilities = new Float32Array((isSum ? 1 : count) * numKvHeads * numSlots);
    await program.read('mass', probabilities);
    for (let t = isSum ? count - 1 : 0; t < count; t++) {
      const position = this.#begin + first + t;
      const keys = isPositional(policy) ? positionalKeys(policy, position, slots.length, causal).tokens : undefined;
      for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
        const row = ((isSum ? 0 : t) * numKvHeads + kvHead) * numSlots;
        const ofQuery = probabilities.subarray(row, row + numSlots);
        this.#addMass(kvHead, ofQuery, keys, causal ? position + 1 : slots.length);
        if (keys === undefined) this.#reportChosen(position, kvHead, run, ofQuery);
      }
    }
  }

  #addMass(kvHead: number, probabilities: Float32Array, keys: Int32Array | undefined, end: number): void {
    const { mass, massStride } = this.#options;
    const { shape, slots } = this.#context;
    if (mass === undefined) return;
    const begin = kvHead * (massStride ?? Math.floor(mass.length / shape.numKvHeads));
    if (keys === undefined) for (let j = 0; j < end; j++) mass[begin + j] += probabilities[j];
    else for (const j of keys) mass[begin + j] += probabilities[slots.slotOf(j)];
  }

  #reportChosen(query: number, kvHead: number, run: number, probabilities: Float32Array): void {
    const { onVisit } = this.#options;
    if (onVisit === undefined) return;
    const { policy, shape, causal, slots } = this.#context;
    const perHead = this.#variant.numHeads !== shape.numHeads;
    const firstHead = kvHead * shape.groupSize + (perHead ? run : 0);
    const last = causal ? query : slots.length - 1;
    const keys = chosenKeys(policy, last, probabilities);
    onVisit({ query, firstHead, numHeads: perHead ? 1 : shape.groupSize, ...keys });
  }

  #reportPositional(first: number, count: number): void {
    const { onVisit } = this.#options;
    const { policy, shape, causal, slots } = this.#context;
    if (onVisit === undefined || !isPositional(policy)) return;
    for (let query = this.#begin + first; query < this.#begin + first + count; query++) {
      const keys = positionalKeys(policy, query, slots.length, causal);
      onVisit({ query, firstHead: 0, numHeads: shape.numHeads, ...keys });
    }
  }
}

/** Pairs of one head of dense attention: causal, or every query with `seqLen` keys. */
export function densePairs(begin: number, count: number, seqLen: number | undefined): number {
  return seqLen === undefined ? count * begin + (count * (count + 1)) / 2 : count * seqLen;
}

function variantOf({ shape, policy, rotate }: CallContext, { onVisit, mass }: AttendOptions): AttendVariant {
  const readsMass = mass !== undefined || (onVisit !== undefined && !isPositional(policy));
  const isSplit = onVisit !== undefined && choosesPerHead(policy);
  const numHeads = isSplit ? shape.numKvHeads : shape.numHeads;
  const perToken = shape.numKvHeads * shape.numBlocks * shape.blockSize;
  const maxTokens = Math.max(1, Math.min(shape.maxTokens, Math.floor(maxProbabilities / perToken)));
  const hasSinkQueries = policy.kind === 'streaming' && policy.sinks > 0 && rotate !== undefined;
  return {
    ...{ policy, numHeads, mass: readsMass, hasSinkQueries },
    maxTokens: readsMass && policy.kind !== 'dense' ? maxTokens : shape.maxTokens,
  };
}

function checkMass({ mass, massStride }: AttendOptions, { numKvHeads }: LayerShape, numPositions: number): void {
  if (mass === undefined) return;
  const stride = massStride ?? Math.floor(mass.length / numKvHeads);
  if (stride >= numPositions && mass.length >= stride * numKvHeads) return;
  const [expected, actual] = [`[${numKvHeads}, at least ${numPositions}]`, `${mass.length} values`];
  throw new ShapeError({ op: 'attention', rule: 'mass', expected, actual });
}
