/** One attention layer of one sequence with its cache, under any pair of policies, as small programs on a backend. */
import { createReferenceBackend, type Backend } from '@winnow/ops';
import {
  ArgumentError,
  BackendError,
  checkOptions,
  type OptionNames,
  ReleasedError,
  type Tensor3,
  tensorBytes,
} from '@winnow/tensor';
import { checkCausal } from '../lowering/lower-policy.js';
import { meanSizeOf, pageSizeOf } from '../lowering/side-data.js';
import { deltaOf } from '../policy/fields.js';
import { parsePolicy } from '../policy/text.js';
import { phasePolicy } from '../policy/values.js';
import type { AttentionPhase, AttentionPolicy, LayerPolicy } from '../policy/kinds.js';
import { AttendCall, densePairs, storeTokens, type NewTokens, type Rotate } from './call.js';
import type { AttendOptions, AttentionResult } from './options.js';
import { HeavyHitterState, type HeavyHitters } from './heavy-hitters.js';
import { LayerPrograms } from './programs.js';
import { checkTensor, layerShape, type LayerShape, type LayerSizes } from './shape.js';
import { SlotMap } from './slot-map.js';

/** Options of `AttentionLayer`. */
export interface AttentionLayerOptions extends LayerSizes {
  /** The backend. Default: the reference backend, which is slow. */
  readonly backend?: Backend | undefined;
  /** Policies, as objects or text. Default: dense. */
  readonly prefill?: AttentionPolicy | string | undefined;
  readonly decode?: AttentionPolicy | string | undefined;
  /**
   * Capacity in positions. Not needed if both phases are streaming: a ring buffer then keeps the sinks, the window and
   * one run.
   */
  readonly capacity?: number | undefined;
  /**
   * Default: true. If false, queries also attend to later tokens in the cache: dense, subquadratic and oracle-topk
   * only.
   */
  readonly causal?: boolean | undefined;
  /**
   * Rotates queries for `streaming`, which then takes unrotated queries and remaps their positions near the sinks.
   * Default: queries are used unchanged.
   */
  readonly rotate?: Rotate | undefined;
  /** Allow `h2o-prefill` budgets of a chunk or more. Default: they are clamped, and `notice` reports it. */
  readonly allowsLargeMemory?: boolean | undefined;
  /** Receives a sentence about each change to a policy. */
  readonly notice?: ((text: string) => void) | undefined;
}

const layerNames: OptionNames<AttentionLayerOptions> = {
  ...{
    numHeads: true,
    numKvHeads: true,
    headDim: true,
    valueDim: true,
    scale: true,
    dtype: { keys: true, values: true },
  },
  maxTokens: true,
  backend: true,
  prefill: true,
  decode: true,
  capacity: true,
  causal: true,
  rotate: true,
  allowsLargeMemory: true,
  notice: true,
};

/** Counters of a layer. */
export interface AttentionLayerReport {
  readonly prefillPairs: number;
  readonly decodePairs: number;
  /** Pairs that dense attention would have visited in both phases. */
  readonly densePairs: number;
  /** `pairs / densePairs` */
  readonly density: number;
  /** Bytes of the cached keys and values. */
  readonly cacheBytes: number;
}

/**
 * A cache with one policy for prefill and one for decode. One call at a time; `close` frees its memory. If a call fails,
 * the tokens that it appended stay until `truncate` removes them.
 *
 * ```ts
 * await using layer = new AttentionLayer({ backend, decode: 'sparq', numHeads: 8, numKvHeads: 2, headDim: 64, capacity: 4096 });
 * await layer.prefill(q, k, v);
 * const { out } = await layer.decode(nextQ, nextK, nextV);
 * ```
 */
export class AttentionLayer {
  readonly #backend: Backend;
  readonly #causal: boolean;
  readonly #rotate: Rotate | undefined;
  readonly #policies: LayerPolicy;
  readonly #shape: LayerShape;
  readonly #slots: SlotMap;
  readonly #programs: LayerPrograms;
  readonly #heavyHitters: HeavyHitterState | undefined;
  readonly #pairs = { prefill: 0, decode: 0, dense: 0 };
  /** Whether the state of a correction has no anchor, or one that `truncate` may have removed. */
  #isFresh = true;
  #state: 'idle' | 'busy' | 'closed' = 'idle';

  /** @throws {ArgumentError | ShapeError | DTypeError} for impossible sizes and policies */
  constructor(options: AttentionLayerOptions) {
    checkOptions(options, layerNames);
    const { backend = createReferenceBackend(), causal = true, notice = () => {}, allowsLargeMemory } = options;
    const prefill = policyOf(options.prefill, 'prefill');
    const decode = policyOf(options.decode, 'decode');
    const policies = [prefill, decode];
    for (const policy of policies) checkCausal(policy, causal);
    const ring = ringOf(prefill, decode, options.maxTokens);
    const capacity = ring?.capacity ?? options.capacity;
    if (capacity === undefined) {
      const expected = 'the capacity in positions';
      throw new ArgumentError({ argument: 'AttentionLayer: capacity', expected, actual: 'nothing' });
    }
    const partSizes = policies.flatMap((policy) => [meanSizeOf(policy) ?? 1, pageSizeOf(policy) ?? 1]);
    const shape = layerShape(options, capacity, partSizes, ring?.maxTokens);
    this.#backend = backend;
    this.#causal = causal;
    this.#rotate = options.rotate;
    this.#policies = { prefill, decode };
    this.#shape = shape;
    this.#slots = new SlotMap({ capacity, ring });
    this.#programs = new LayerPrograms({ backend, shape, lowering: { policies, notice, allowsLargeMemory, causal } });
    if (prefill.kind === 'h2o-prefill') {
      const bufferOf = (name: string): ReturnType<LayerPrograms['buffer']> => this.#programs.buffer(name);
      const { numKvHeads } = shape;
      this.#heavyHitters = new HeavyHitterState({ backend, policy: prefill, numKvHeads, bufferOf });
    }
  }

  /** Number of positions. */
  get length(): number {
    return this.#slots.length;
  }

  /** Appends the keys and values of a prompt, or of its next part, and attends with its queries. */
  prefill(q: Tensor3, k: Tensor3, v: Tensor3, options: AttendOptions = {}): Promise<AttentionResult> {
    return this.#exclusively(() => this.#step('prefill', q, k, v, options));
  }

  /** Appends one token, or a few drafts, and attends under the decode policy. */
  decode(q: Tensor3, k: Tensor3, v: Tensor3, options: AttendOptions = {}): Promise<AttentionResult> {
    return this.#exclusively(() => this.#step('decode', q, k, v, options));
  }

  /** Appends keys `[tokens, numKvHeads, headDim]` and values without queries. @throws {ShapeError | CapacityError} */
  append(k: Tensor3, v: Tensor3): Promise<void> {
    return this.#exclusively(async () => {
      this.#checkKeys(k, v);
      await this.#append({ k, v });
    });
  }

  /**
   * Attends with queries at positions `begin, begin + 1, ...` over the cached keys.
   * @throws {ShapeError | ArgumentError} for positions that are not in the cache
   */
  attend(phase: AttentionPhase, q: Tensor3, begin: number, options: AttendOptions = {}): Promise<AttentionResult> {
    return this.#exclusively(async () => {
      if (!Number.isSafeInteger(begin) || begin < 0 || begin + q.seqLen > this.length) {
        const expected = `positions within the ${this.length} cached tokens`;
        throw new ArgumentError({ argument: 'attend', expected, actual: `[${begin}, ${begin + q.seqLen})` });
      }
      this.#slots.checkReadable(begin);
      const call = this.#call(phase, q, begin, options);
      await this.#attend(phase, call, begin, 0, q.seqLen);
      return this.#finish(phase, call);
    });
  }

  /**
   * Forgets positions from `length` on (rejected drafts).
   * @throws {ArgumentError} if a ring, or the memory of `h2o-prefill`, cannot be undone
   */
  truncate(length: number): Promise<void> {
    return this.#exclusively(async () => {
      this.#heavyHitters?.checkTruncate(length);
      this.#slots.truncate(length);
      this.#isFresh = true;
      await this.#heavyHitters?.truncate(length);
    });
  }

  /** Contents of the `h2o-prefill` memory, per KV head. @throws {ArgumentError} under another policy */
  heavyHitters(): Promise<HeavyHitters[]> {
    return this.#exclusively(async () => {
      if (this.#heavyHitters !== undefined) return this.#heavyHitters.read();
      const actual = this.#policies.prefill.kind;
      throw new ArgumentError({ argument: 'heavyHitters: prefill', expected: 'h2o-prefill', actual });
    });
  }

  report(): AttentionLayerReport {
    const { prefill, decode, dense } = this.#pairs;
    const { numBlocks, blockSize, numKvHeads, headDim, valueDim, dtype } = this.#shape;
    const rows = [numBlocks, blockSize, numKvHeads];
    const cacheBytes = tensorBytes(dtype.keys, [...rows, headDim]) + tensorBytes(dtype.values, [...rows, valueDim]);
    const density = dense === 0 ? 1 : (prefill + decode) / dense;
    return { prefillPairs: prefill, decodePairs: decode, densePairs: dense, density, cacheBytes };
  }

  /** Frees the memory on the backend. Closing twice is harmless. */
  async close(): Promise<void> {
    this.#state = 'closed';
    await this.#programs.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #step(
    phase: AttentionPhase,
    q: Tensor3,
    k: Tensor3,
    v: Tensor3,
    options: AttendOptions,
  ): Promise<AttentionResult> {
    this.#checkKeys(k, v);
    checkTensor('queries', q, k.seqLen, this.#shape.numHeads, this.#shape.headDim);
    const base = this.length;
    const newTokens = { k, v };
    const call = this.#call(phase, q, base, options, this.#causal ? newTokens : undefined);
    this.#slots.checkAppend(k.seqLen);
    if (this.#causal) {
      for (const [begin, end] of this.#pieces(k.seqLen)) await this.#attend(phase, call, base, begin, end);
    } else {
      await this.#append(newTokens);
      await this.#attend(phase, call, base, 0, q.seqLen);
    }
    return this.#finish(phase, call);
  }

  /** Splits a call into runs. */
  #pieces(numTokens: number): (readonly [number, number])[] {
    const { maxTokens } = this.#shape;
    return Array.from({ length: Math.ceil(numTokens / maxTokens) }, (_, piece) => {
      return [piece * maxTokens, Math.min(numTokens, (piece + 1) * maxTokens)];
    });
  }

  #checkKeys(k: Tensor3, v: Tensor3): void {
    const { numKvHeads, headDim, valueDim } = this.#shape;
    checkTensor('keys', k, k.seqLen, numKvHeads, headDim);
    checkTensor('values', v, k.seqLen, numKvHeads, valueDim);
  }

  async #append(newTokens: NewTokens): Promise<void> {
    const program = await this.#programs.append();
    const positions = program.scalars.slot('positions');
    for (const [begin, end] of this.#pieces(newTokens.k.seqLen)) {
      for (let t = 0; t < end - begin; t++) positions[t] = this.length + t;
      program.scalars.bind('T', end - begin);
      await storeTokens(program, this.#slots, newTokens, begin, end);
      await program.run();
    }
  }

  #call(phase: AttentionPhase, q: Tensor3, begin: number, options: AttendOptions, newTokens?: NewTokens): AttendCall {
    const policy = this.#policies[phase];
    if (policy.kind === 'h2o-prefill') this.#heavyHitters?.checkBegin(begin);
    const [shape, programs, slots] = [this.#shape, this.#programs, this.#slots];
    const context = { shape, programs, slots, policy, causal: this.#causal, rotate: this.#rotate };
    return new AttendCall(context, q, begin, options, newTokens);
  }

  async #attend(phase: AttentionPhase, call: AttendCall, base: number, first: number, end: number): Promise<void> {
    const isH2o = this.#policies[phase].kind === 'h2o-prefill';
    const isFresh = this.#heavyHitters?.isNew ?? this.#isFresh;
    await call.run(first, end, isFresh ? -1 : 0);
    if (deltaOf(this.#policies[phase]) > 0) this.#isFresh = false;
    const pairs = densePairs(base + first, end - first, this.#causal ? undefined : this.length);
    this.#pairs.dense += pairs * this.#shape.numHeads;
    if (!isH2o || this.#heavyHitters === undefined) return;
    this.#heavyHitters.isNew = false;
    this.#heavyHitters.length = base + end;
  }

  #finish(phase: AttentionPhase, call: AttendCall): AttentionResult {
    const result = call.result();
    this.#pairs[phase] += result.pairs;
    return result;
  }

  async #exclusively<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#state === 'closed') throw new ReleasedError('attention layer');
    if (this.#state === 'busy') {
      throw new BackendError({ backend: this.#backend.name, message: 'the attention layer is already running' });
    }
    this.#state = 'busy';
    try {
      return await work();
    } finally {
      if (this.#state === 'busy') this.#state = 'idle';
    }
  }
}

function policyOf(given: AttentionPolicy | string | undefined, phase: AttentionPhase): AttentionPolicy {
  if (given === undefined) return { kind: 'dense' };
  return phasePolicy(typeof given === 'string' ? parsePolicy(given, phase) : given, phase, phase);
}

interface Ring {
  readonly sinks: number;
  readonly window: number;
  readonly capacity: number;
  readonly maxTokens: number;
}

/** If both phases are streaming: the ring holds the sinks, the window, and the other tokens of one run. */
function ringOf(a: AttentionPolicy, b: AttentionPolicy, maxTokens = 256): Ring | undefined {
  if (a.kind !== 'streaming' || b.kind !== 'streaming' || deltaOf(a) > 0) return undefined;
  const [sinks, window] = [Math.max(a.sinks, b.sinks), Math.max(a.window, b.window)];
  const tokensOfRun = Math.min(maxTokens, window);
  return { sinks, window, capacity: sinks + window + tokensOfRun - 1, maxTokens: tokensOfRun };
}
