/** The subquadratic family: the exact softmax over the candidates of each query. */
import type { Tensor3 } from '@winnow/tensor';
import { checkAttend, familyShape, reportVisit } from '../core/family.js';
import type { AttendOptions, AttentionFamily, FamilyOptions, FamilyShape } from '../core/family.js';
import { GroupAttend } from '../core/group-attend.js';
import type { KvRows } from '../core/rows.js';
import type { SubquadraticPolicy } from '../policy/policy-types.js';
import { CandidateSet, type CandidateOptions } from './candidates.js';
import { attendFlash, FlashScratch } from './flash.js';
import { Landmarks } from './landmarks.js';

/** Options of `SubquadraticAttention`. */
export interface SubquadraticOptions extends FamilyOptions, CandidateOptions {
  /** Queries and keys per tile of the flash form; absent: the plain form, row by row. */
  readonly flashTile?: number | undefined;
}

/** Additional results of the subquadratic family. */
export interface SubquadraticAttendOptions extends AttendOptions {
  /** As `mass`, for landmarks: `[numKvHeads, blockMassStride]`. Plain form only, as `mass` is. */
  readonly blockMass?: Float32Array | undefined;
}

/**
 * Window + globals + log-stride + landmarks over keys and values that are appended (decode, chunked prefill) or given at
 * once. Cost per query: O(window + log N) keys; nothing is allocated or cleared per query.
 */
export class SubquadraticAttention implements AttentionFamily {
  readonly policy: SubquadraticPolicy;
  readonly candidates: CandidateSet;
  readonly landmarks: Landmarks;
  readonly shape: FamilyShape;
  pairs = 0;
  readonly #kv: KvRows;
  readonly #group: GroupAttend;
  readonly #flash: FlashScratch | undefined;

  /** @throws {ShapeError} unless the query heads are a multiple of the KV heads */
  constructor(options: SubquadraticOptions) {
    this.policy = options.policy;
    this.candidates = new CandidateSet(options);
    this.shape = familyShape(options);
    this.#kv = options.kv;
    this.landmarks = new Landmarks(options.kv, options.policy.blockSize);
    const { groupSize, headDim, valueDim } = this.shape;
    this.#group = new GroupAttend(groupSize, headDim, valueDim);
    this.#flash = options.flashTile === undefined ? undefined : new FlashScratch(this.shape, options.flashTile);
    this.appended();
  }

  /** Bytes of working memory besides keys, values and landmarks. */
  get scratchBytes(): number {
    const { rows, query } = this.#group;
    const plain = query.byteLength + rows.o.byteLength + 2 * rows.m.byteLength;
    const set = this.candidates.tokens.byteLength + this.candidates.blocks.byteLength;
    return set + plain + (this.#flash?.sizeBytes ?? 0);
  }

  appended(): void {
    if (this.policy.landmarks !== 'off') this.landmarks.append();
  }

  truncated(length: number): void {
    this.landmarks.truncate(length);
  }

  attend(q: Tensor3, begin: number, out: Tensor3, options: SubquadraticAttendOptions = {}): void {
    checkAttend(this.shape, this.#kv, q, begin, out, options);
    if (this.#flash !== undefined && options.mass === undefined && options.blockMass === undefined) {
      const { candidates, landmarks, shape } = this;
      this.pairs += attendFlash(this.#flash, { candidates, landmarks, shape, kv: this.#kv }, q, begin, out, options);
      return;
    }
    for (let t = 0; t < q.seqLen; t++) this.#attendRow(q, begin, t, out, options);
  }

  #attendRow(q: Tensor3, begin: number, t: number, out: Tensor3, options: SubquadraticAttendOptions): void {
    const { candidates, landmarks } = this;
    const { keys, values, length } = this.#kv;
    const { numHeads, numKvHeads, groupSize, headDim, valueDim, scale } = this.shape;
    const { mass, blockMass, visits, states } = options;
    const group = this.#group;
    candidates.enumerate(begin + t, length);
    const { tokens, numTokens, blocks, numBlocks } = candidates;
    for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
      const row = t * numHeads + kvHead * groupSize;
      group.begin(q.data, row * headDim, scale, mass !== undefined || blockMass !== undefined);
      group.addAll(keys, values, tokens, numTokens, kvHead);
      for (let b = 0; b < numBlocks; b++) {
        group.add(landmarks.keys, landmarks.values, blocks[b], kvHead, this.landmarkBias(blocks[b]));
      }
      group.finish(out.data, row * valueDim);
      if (states !== undefined) group.store(states, row);
      if (mass !== undefined) {
        const stride = options.massStride ?? Math.floor(mass.length / numKvHeads);
        group.addMass(mass, kvHead * stride, tokens, numTokens);
      }
      if (blockMass !== undefined) {
        const stride = Math.floor(blockMass.length / numKvHeads);
        group.addMass(blockMass, kvHead * stride, blocks, numBlocks, numTokens);
      }
    }
    this.pairs += (numTokens + numBlocks) * numHeads;
    reportVisit(visits, begin + t, 0, numHeads, tokens, numTokens, blocks, numBlocks);
  }

  /** What is added to the logit of a landmark. */
  landmarkBias(block: number): number {
    return this.policy.landmarkBias === 'log-count' ? Math.log(this.landmarks.count(block)) : 0;
  }
}
