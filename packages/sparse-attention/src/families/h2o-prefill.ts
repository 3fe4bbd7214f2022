/**
 * Chunked prefill with a heavy-hitter memory. A query sees its own chunk causally and the memory set built after the
 * chunk before; the two softmaxes are fused exactly. Chunks lie on a grid of positions, so that it does not matter in
 * which batches a prompt arrives; memory and scores live as long as the session.
 */
import { clearState, mergeState, type PartialStates } from '@winnow/ops';
import { ArgumentError, type Tensor3 } from '@winnow/tensor';
import { checkAttend, familyShape, reportVisit } from '../core/family.js';
import type { AttendOptions, AttentionFamily, FamilyOptions, FamilyShape } from '../core/family.js';
import { GroupAttend } from '../core/group-attend.js';
import type { KvRows } from '../core/rows.js';
import type { H2oPrefillPolicy } from '../policy/policy-types.js';
import { clampBudgets, H2oMemory } from './h2o-memory.js';

/** Options of `H2oPrefillAttention`. */
export interface H2oPrefillOptions extends FamilyOptions {
  readonly policy: H2oPrefillPolicy;
  /** `parallel`: within-chunk attention of the whole batch first (threads may share it). `sequential`: chunk by chunk. */
  readonly schedule?: 'parallel' | 'sequential' | undefined;
  /** Hears in words when the budgets had to be cut to less than a chunk. */
  readonly notice?: ((text: string) => void) | undefined;
  /** Take budgets of a chunk and more as they are. */
  readonly allowsLargeMemory?: boolean | undefined;
  /** Hears the positions that memory holds after each chunk, per KV head. The array is reused. */
  readonly onMemory?: ((chunk: number, kvHead: number, positions: Int32Array) => void) | undefined;
}

interface Piece {
  readonly first: number; // query within the batch
  readonly begin: number; // positions
  readonly end: number;
}

/** H2O prefill of one layer. */
export class H2oPrefillAttention implements AttentionFamily {
  readonly policy: H2oPrefillPolicy;
  readonly shape: FamilyShape;
  readonly memory: H2oMemory;
  /** Pairs within chunks and with memory, over all query heads. */
  intraPairs = 0;
  interPairs = 0;
  /** Chunks whose queries have voted on memory. */
  numUpdates = 0;
  /** Tokens whose chunk and scores are known. */
  length = 0;
  readonly #kv: KvRows;
  readonly #options: H2oPrefillOptions;
  readonly #group: GroupAttend;
  #columnSums = new Float64Array(0);
  #visited = new Int32Array(0);
  #lastVotingChunk = -1; // where the chunk begins whose queries were the last to see memory
  #states: PartialStates = { m: new Float32Array(0), l: new Float32Array(0), o: new Float32Array(0) };

  constructor(options: H2oPrefillOptions) {
    this.shape = familyShape(options);
    const { policy, kv, notice, allowsLargeMemory = false } = options;
    const { groupSize, headDim, valueDim, numKvHeads } = this.shape;
    this.policy = policy;
    this.#kv = kv;
    this.#options = options;
    this.memory = new H2oMemory(allowsLargeMemory ? policy : clampBudgets(policy, notice), numKvHeads);
    this.#group = new GroupAttend(groupSize, headDim, valueDim);
  }

  get pairs(): number {
    return this.intraPairs + this.interPairs;
  }

  /** Positions that memory holds for a KV head now, ascending. */
  keptPositions(kvHead: number): Int32Array {
    return this.memory.positions[kvHead].slice(0, this.memory.size);
  }

  /**
   * Back to fewer tokens, which only works within the chunk that is open: memory of chunks before has no way back.
   * Votes of forgotten queries stay in the scores.
   * @throws {ArgumentError} for a length before the open chunk
   */
  truncated(length: number): void {
    if (length >= this.length) return;
    const chunkBegin = Math.floor(this.length / this.policy.chunk) * this.policy.chunk;
    if (length < chunkBegin) {
      const expected = `at least ${chunkBegin}, where the open chunk begins`;
      throw new ArgumentError({ argument: 'h2o-prefill: truncate', expected, actual: String(length) });
    }
    for (const scores of this.memory.scores) scores.fill(0, length, this.length);
    this.length = length;
  }

  /** Tokens between the last call and `begin` (decoded under another policy) join their chunks with score 0. */
  attend(q: Tensor3, begin: number, out: Tensor3, options: AttendOptions = {}): void {
    checkAttend(this.shape, this.#kv, q, begin, out, options);
    if (begin < this.length) {
      const expected = `${this.length} or later: scores follow the tokens`;
      throw new ArgumentError({ argument: 'h2o-prefill: begin', expected, actual: String(begin) });
    }
    if (options.mass !== undefined) {
      const expected = 'no mass: votes are summed in memory.scores';
      throw new ArgumentError({ argument: 'h2o-prefill', expected, actual: 'mass' });
    }
    this.memory.reserve(begin + q.seqLen);
    const { chunk } = this.policy;
    this.#skipTo(begin);
    const pieces: Piece[] = [];
    for (let position = begin; position < begin + q.seqLen;) {
      const end = Math.min(begin + q.seqLen, (Math.floor(position / chunk) + 1) * chunk);
      pieces.push({ first: position - begin, begin: position, end });
      position = end;
    }
    this.#reserveStates(q.seqLen);
    if (this.#options.schedule !== 'sequential') {
      for (const piece of pieces) this.#intra(q, piece);
      for (const piece of pieces) this.#inter(q, piece, out, options);
    } else {
      for (const piece of pieces) {
        this.#intra(q, piece);
        this.#inter(q, piece, out, options);
      }
    }
  }

  #skipTo(begin: number): void {
    const { chunk } = this.policy;
    while (this.length < begin) {
      const end = Math.min(begin, (Math.floor(this.length / chunk) + 1) * chunk);
      this.length = end;
      if (end % chunk === 0) this.#closeChunk(end);
    }
  }

  #reserveStates(numTokens: number): void {
    const { numHeads, valueDim } = this.shape;
    const numRows = (numTokens + 1) * numHeads; // the last rows are scratch of the second phase
    if (this.#states.m.length >= numRows) return;
    this.#states = {
      m: new Float32Array(numRows),
      l: new Float32Array(numRows),
      o: new Float32Array(numRows * valueDim),
    };
  }

  /** Phase 1: causal attention within the chunk, and first scores of its tokens from the column sums of its weights. */
  #intra(q: Tensor3, { first, begin, end }: Piece): void {
    const { numHeads, numKvHeads, groupSize, headDim, scale } = this.shape;
    const { keys, values } = this.#kv;
    const chunkBegin = Math.floor(begin / this.policy.chunk) * this.policy.chunk;
    const group = this.#group;
    const sums = this.#clearSums(end - chunkBegin);
    for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
      sums.fill(0, 0, end - chunkBegin);
      for (let position = begin; position < end; position++) {
        const row = (first + position - begin) * numHeads + kvHead * groupSize;
        group.begin(q.data, row * headDim, scale, true);
        for (let j = chunkBegin; j <= position; j++) group.add(keys, values, j, kvHead);
        group.store(this.#states, row);
        for (let j = 0; j <= position - chunkBegin; j++) {
          for (let head = 0; head < groupSize; head++) sums[j] += group.weight(j, head);
        }
        this.intraPairs += (position - chunkBegin + 1) * groupSize;
      }
      const scores = this.memory.scores[kvHead];
      for (let j = chunkBegin; j < end; j++) scores[j] += sums[j - chunkBegin];
    }
  }

  /** Phase 2: attention to memory, its votes, fusion with phase 1, and memory for the next chunk. */
  #inter(q: Tensor3, { first, begin, end }: Piece, out: Tensor3, { states, visits }: AttendOptions): void {
    const { numHeads, numKvHeads, groupSize, headDim, valueDim, scale } = this.shape;
    const { keys, values } = this.#kv;
    const { chunk } = this.policy;
    const { positions, size, scores } = this.memory;
    const chunkBegin = Math.floor(begin / chunk) * chunk;
    const group = this.#group;
    const fused = this.#states;
    const scratchRow = q.seqLen * numHeads;
    for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
      const memory = positions[kvHead];
      const sums = this.#clearSums(size);
      for (let t = first; t < first + end - begin; t++) {
        const row = t * numHeads + kvHead * groupSize;
        if (size > 0) {
          group.begin(q.data, row * headDim, scale, true);
          group.addAll(keys, values, memory, size, kvHead);
          group.store(fused, scratchRow);
          for (let i = 0; i < size; i++) for (let h = 0; h < groupSize; h++) sums[i] += group.weight(i, h);
          for (let h = 0; h < groupSize; h++) mergeState(fused, row + h, fused, scratchRow + h, valueDim);
          this.interPairs += size * groupSize;
        }
        writeOutput(fused, row, groupSize, valueDim, out.data);
        if (states !== undefined) copyStates(fused, row, groupSize, valueDim, states);
        if (visits !== undefined) this.#visit(visits, begin + t - first, kvHead, chunkBegin);
      }
      for (let i = 0; i < size; i++) scores[kvHead][memory[i]] += sums[i];
    }
    if (size > 0 && this.#lastVotingChunk !== chunkBegin) this.numUpdates += 1;
    this.#lastVotingChunk = chunkBegin;
    this.length = end;
    if (end % chunk === 0) this.#closeChunk(end);
  }

  #visit(visits: NonNullable<AttendOptions['visits']>, position: number, kvHead: number, chunkBegin: number): void {
    const { groupSize } = this.shape;
    const { positions, size } = this.memory;
    const numKeys = size + position - chunkBegin + 1;
    if (this.#visited.length < numKeys) this.#visited = new Int32Array(2 * numKeys);
    this.#visited.set(positions[kvHead].subarray(0, size));
    for (let j = chunkBegin; j <= position; j++) this.#visited[size + j - chunkBegin] = j;
    reportVisit(visits, position, kvHead * groupSize, groupSize, this.#visited, numKeys);
  }

  #clearSums(length: number): Float64Array {
    if (this.#columnSums.length < length) this.#columnSums = new Float64Array(2 * length);
    return this.#columnSums.fill(0, 0, length);
  }

  #closeChunk(end: number): void {
    const { chunk } = this.policy;
    this.memory.select(end - chunk, end);
    const { onMemory } = this.#options;
    if (onMemory === undefined) return;
    for (let kvHead = 0; kvHead < this.shape.numKvHeads; kvHead++) {
      onMemory(end / chunk - 1, kvHead, this.memory.positions[kvHead].subarray(0, this.memory.size));
    }
  }
}

function writeOutput({ l, o }: PartialStates, row: number, count: number, dim: number, out: Float32Array): void {
  for (let r = row; r < row + count; r++) {
    const factor = l[r] === 0 ? 0 : 1 / l[r];
    for (let i = r * dim; i < (r + 1) * dim; i++) out[i] = o[i] * factor;
  }
}

function copyStates(source: PartialStates, row: number, count: number, dim: number, target: PartialStates): void {
  for (let r = row; r < row + count; r++) {
    clearState(target, r, dim);
    mergeState(target, r, source, r, dim);
  }
}
