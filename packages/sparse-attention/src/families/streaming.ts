/**
 * Sinks and a window (StreamingLLM, arXiv:2309.17453) without touching stored keys: keys stay rotated at their own
 * positions. The query is rotated for its own position against the window, and for position `sinks + window - 1` against
 * the sinks, as if the tokens between had never been; both meet in one softmax.
 */
import { ArgumentError, type Tensor3 } from '@winnow/tensor';
import { checkAttend, familyShape, reportVisit } from '../core/family.js';
import type { AttendOptions, AttentionFamily, FamilyOptions, FamilyShape } from '../core/family.js';
import { GroupAttend } from '../core/group-attend.js';
import type { KvRows } from '../core/rows.js';
import type { StreamingPolicy } from '../policy/policy-types.js';

/** Rotates the head vector at `source[offset...]` for a position into `out[0 ...]`, as the keys were rotated. */
export type Rotate = (
  source: Float32Array,
  offset: number,
  position: number,
  out: Float32Array,
  outOffset: number,
) => void;

/** Options of `StreamingAttention`. */
export interface StreamingOptions extends FamilyOptions {
  readonly policy: StreamingPolicy;
  /** How to rotate queries, which are given unrotated then. Absent: queries are used as they are, nothing is remapped. */
  readonly rotate?: Rotate | undefined;
}

/** The first `sinks` and the last `window` tokens, the query's own included. The keys may lie in a ring (`KvStore`). */
export class StreamingAttention implements AttentionFamily {
  readonly policy: StreamingPolicy;
  readonly shape: FamilyShape;
  pairs = 0;
  readonly #kv: KvRows;
  readonly #rotate: Rotate | undefined;
  readonly #group: GroupAttend;
  readonly #rotated: Float32Array;
  readonly #positions: Int32Array;

  /** @throws {ArgumentError} when keys lie in a ring that forgets what the policy needs */
  constructor(options: StreamingOptions) {
    this.shape = familyShape(options);
    const { policy, kv, rotate } = options;
    const { groupSize, headDim, valueDim } = this.shape;
    if ('ringSinks' in kv && 'capacity' in kv && kv.ringSinks !== undefined) {
      const isEnough =
        Number(kv.ringSinks) >= policy.sinks && Number(kv.capacity) - Number(kv.ringSinks) >= policy.window;
      if (!isEnough) {
        const expected = `a ring of at least ${policy.sinks} + ${policy.window} tokens`;
        const actual = `${kv.ringSinks} + ${Number(kv.capacity) - Number(kv.ringSinks)}`;
        throw new ArgumentError({ argument: 'kv', expected, actual });
      }
    }
    this.policy = policy;
    this.#kv = kv;
    this.#rotate = rotate;
    this.#group = new GroupAttend(groupSize, headDim, valueDim);
    this.#rotated = new Float32Array(groupSize * headDim);
    this.#positions = new Int32Array(policy.sinks + policy.window);
  }

  attend(q: Tensor3, begin: number, out: Tensor3, options: AttendOptions = {}): void {
    checkAttend(this.shape, this.#kv, q, begin, out, options);
    const { numHeads, numKvHeads, groupSize, headDim, valueDim } = this.shape;
    const { keys, values } = this.#kv;
    const { sinks, window } = this.policy;
    const { mass, visits, states } = options;
    const group = this.#group;
    const positions = this.#positions;
    for (let t = 0; t < q.seqLen; t++) {
      const position = begin + t;
      const windowBegin = Math.max(0, position - window + 1);
      const numSinks = Math.min(sinks, windowBegin);
      let numKeys = 0;
      for (let j = 0; j < numSinks; j++) positions[numKeys++] = j;
      for (let j = windowBegin; j <= position; j++) positions[numKeys++] = j;
      for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
        const row = t * numHeads + kvHead * groupSize;
        this.#query(q.data, row * headDim, Math.min(position, sinks + window - 1), mass !== undefined, true);
        for (let j = 0; j < numSinks; j++) group.add(keys, values, j, kvHead);
        this.#query(q.data, row * headDim, position, false, false);
        for (let j = windowBegin; j <= position; j++) group.add(keys, values, j, kvHead);
        group.finish(out.data, row * valueDim);
        if (states !== undefined) group.store(states, row);
        if (mass !== undefined) {
          const stride = options.massStride ?? Math.floor(mass.length / numKvHeads);
          group.addMass(mass, kvHead * stride, positions, numKeys);
        }
      }
      this.pairs += numKeys * numHeads;
      reportVisit(visits, position, 0, numHeads, positions, numKeys);
    }
  }

  #query(q: Float32Array, offset: number, position: number, keepsLogits: boolean, isFirst: boolean): void {
    const { groupSize, headDim, scale } = this.shape;
    const rotated = this.#rotated;
    if (this.#rotate === undefined) {
      for (let i = 0; i < rotated.length; i++) rotated[i] = q[offset + i];
    } else {
      for (let h = 0; h < groupSize; h++) this.#rotate(q, offset + h * headDim, position, rotated, h * headDim);
    }
    if (isFirst) this.#group.begin(rotated, 0, scale, keepsLogits);
    else this.#group.setQuery(rotated, 0, scale);
  }
}
