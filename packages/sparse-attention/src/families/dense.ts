/** Every key: the reference that every other family is compared with. */
import type { Tensor3 } from '@winnow/tensor';
import { checkAttend, familyShape, reportVisit } from '../core/family.js';
import type { AttendOptions, AttentionFamily, FamilyOptions, FamilyShape } from '../core/family.js';
import { GroupAttend } from '../core/group-attend.js';
import type { KvRows } from '../core/rows.js';
import type { DensePolicy } from '../policy/policy-types.js';

/** Dense attention, causal unless told otherwise. */
export class DenseAttention implements AttentionFamily {
  readonly policy: DensePolicy = { kind: 'dense' };
  readonly shape: FamilyShape;
  pairs = 0;
  readonly #kv: KvRows;
  readonly #causal: boolean;
  readonly #group: GroupAttend;
  #positions = new Int32Array(0);

  constructor(options: FamilyOptions & { readonly causal?: boolean | undefined }) {
    this.shape = familyShape(options);
    this.#kv = options.kv;
    this.#causal = options.causal ?? true;
    this.#group = new GroupAttend(this.shape.groupSize, this.shape.headDim, this.shape.valueDim);
  }

  attend(q: Tensor3, begin: number, out: Tensor3, options: AttendOptions = {}): void {
    checkAttend(this.shape, this.#kv, q, begin, out, options);
    const { numHeads, numKvHeads, groupSize, headDim, valueDim, scale } = this.shape;
    const { keys, values, length } = this.#kv;
    const { mass, visits, states } = options;
    const group = this.#group;
    const positions = this.#upTo(length);
    for (let t = 0; t < q.seqLen; t++) {
      const end = this.#causal ? begin + t + 1 : length;
      for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
        const row = t * numHeads + kvHead * groupSize;
        group.begin(q.data, row * headDim, scale, mass !== undefined);
        for (let j = 0; j < end; j++) group.add(keys, values, j, kvHead);
        group.finish(out.data, row * valueDim);
        if (states !== undefined) group.store(states, row);
        if (mass !== undefined) {
          const stride = options.massStride ?? Math.floor(mass.length / numKvHeads);
          group.addMass(mass, kvHead * stride, positions, end);
        }
      }
      this.pairs += end * numHeads;
      reportVisit(visits, begin + t, 0, numHeads, positions, end);
    }
  }

  #upTo(length: number): Int32Array {
    if (this.#positions.length < length) this.#positions = Int32Array.from({ length: 2 * length }, (_, i) => i);
    return this.#positions;
  }
}
