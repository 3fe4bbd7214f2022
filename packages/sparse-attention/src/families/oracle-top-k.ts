/** The k keys of largest logit of every query head: the best that any choice of k keys per head can do for mass. */
import type { Tensor3 } from '@winnow/tensor';
import { checkAttend, familyShape, reportVisit } from '../core/family.js';
import type { AttendOptions, AttentionFamily, FamilyOptions, FamilyShape } from '../core/family.js';
import { GroupAttend } from '../core/group-attend.js';
import type { KvRows } from '../core/rows.js';
import { TopK } from '../core/top-k.js';
import type { OracleTopKPolicy } from '../policy/policy-types.js';

/** Oracle of `policy.k` keys. It computes every logit, so it saves nothing: it is there to compare with. */
export class OracleTopKAttention implements AttentionFamily {
  readonly policy: OracleTopKPolicy;
  readonly shape: FamilyShape;
  pairs = 0;
  readonly #kv: KvRows;
  readonly #causal: boolean;
  readonly #head: GroupAttend;
  readonly #topK = new TopK();
  readonly #chosen: Int32Array;
  #logits = new Float64Array(0);

  constructor(options: FamilyOptions & { readonly policy: OracleTopKPolicy; readonly causal?: boolean | undefined }) {
    this.shape = familyShape(options);
    this.policy = options.policy;
    this.#kv = options.kv;
    this.#causal = options.causal ?? true;
    this.#head = new GroupAttend(1, this.shape.headDim, this.shape.valueDim);
    this.#chosen = new Int32Array(options.policy.k);
  }

  attend(q: Tensor3, begin: number, out: Tensor3, options: AttendOptions = {}): void {
    checkAttend(this.shape, this.#kv, q, begin, out, options);
    const { numHeads, numKvHeads, groupSize, headDim, valueDim, scale } = this.shape;
    const { keys, values, length } = this.#kv;
    const { mass, visits, states } = options;
    if (this.#logits.length < length) this.#logits = new Float64Array(2 * length);
    const logits = this.#logits;
    const head = this.#head;
    for (let t = 0; t < q.seqLen; t++) {
      const end = this.#causal ? begin + t + 1 : length;
      for (let h = 0; h < numHeads; h++) {
        const kvHead = Math.floor(h / groupSize);
        const row = t * numHeads + h;
        head.begin(q.data, row * headDim, scale, mass !== undefined);
        for (let j = 0; j < end; j++) logits[j] = head.logit(0, keys.buffer, keys.locate(j, kvHead));
        const count = this.#topK.select(logits, end, this.policy.k, this.#chosen);
        head.addAll(keys, values, this.#chosen, count, kvHead);
        head.finish(out.data, row * valueDim);
        if (states !== undefined) head.store(states, row);
        if (mass !== undefined) {
          const stride = options.massStride ?? Math.floor(mass.length / numKvHeads);
          head.addMass(mass, kvHead * stride, this.#chosen, count);
        }
        this.pairs += count;
        reportVisit(visits, begin + t, h, 1, this.#chosen, count);
      }
    }
  }
}
