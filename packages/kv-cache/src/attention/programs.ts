/**
 * Attention of one token's queries over cached slots: programs of a few ops, prepared once per shape and parameters.
 */
import { BoundProgram, createStates, externalKv, mergeState, type PartialStates } from '@winnow/ops';
import { ArgumentError, LruMap, ShapeError } from '@winnow/tensor';
import type { KvStorage } from './storage.js';

export interface AttendOptions {
  /** Position of the query. Later keys are masked. Default: the position of the last token. */
  readonly position?: number;
  /**
   * Sliding window: the query attends to keys less than `window` positions before it, including its own. Default 0:
   * all.
   */
  readonly window?: number;
  /** Default `1 / sqrt(headDim)`. */
  readonly scale?: number;
  /** Logits `s` become `softCap * tanh(s / softCap)`. Default 0: off. */
  readonly softCap?: number;
  /** Aborts between ops. */
  readonly signal?: AbortSignal;
}

/** The queries `[N, H]` of one token, and the slots that they attend to. */
export interface AttentionCall {
  readonly q: Float32Array;
  readonly blocks: ArrayLike<number>;
  /** Logical slots in use. */
  readonly numSlots: number;
  /** Position of the query; overrides the options. */
  readonly position: number;
  readonly options: AttendOptions;
}

type Result = 'output' | 'mass' | 'partial';

/** Maximum number of cached programs: callers alternate between a few sets of parameters. */
const maxPrograms = 8;

/** One call at a time. */
export class AttentionPrograms {
  readonly #storage: KvStorage;
  readonly #maxBlocks: number;
  readonly #programs = new LruMap<string, Promise<BoundProgram>>();

  /** @param maxBlocks blocks of the longest sequence */
  constructor(storage: KvStorage, maxBlocks: number) {
    this.#storage = storage;
    this.#maxBlocks = maxBlocks;
  }

  /**
   * Attention output `[N, D]`; zeros for queries without visible keys. @throws {ShapeError | ArgumentError} for queries
   * that do not fit
   */
  async output(call: AttentionCall): Promise<Float32Array> {
    const program = await this.#run('output', call);
    return this.#readOutput(program, call);
  }

  /** The same; also adds the probability of each logical slot, summed over heads, to `masses`. */
  async outputWithMass(call: AttentionCall, masses: Float32Array): Promise<Float32Array> {
    const program = await this.#run('mass', call);
    const { blockSize, numKvHeads } = this.#storage.shape;
    const maxSlots = this.#maxBlocks * blockSize;
    const perHead = new Float32Array(numKvHeads * maxSlots);
    await program.read('mass', perHead);
    for (let head = 0; head < numKvHeads; head++) {
      for (let slot = 0; slot < call.numSlots; slot++) masses[slot] += perHead[head * maxSlots + slot];
    }
    return this.#readOutput(program, call);
  }

  /** Merges the partial state of each query head into its row of `states`. */
  async mergePartial(call: AttentionCall, states: PartialStates): Promise<void> {
    const program = await this.#run('partial', call);
    const { headDim, valueDim } = this.#storage.shape;
    const numHeads = call.q.length / headDim;
    const part = createStates(numHeads, valueDim);
    for (const name of ['m', 'l', 'o'] as const) await program.read(name, part[name]);
    for (let head = 0; head < numHeads; head++) mergeState(states, head, part, head, valueDim);
  }

  async close(): Promise<void> {
    const programs = await Promise.all(this.#programs.values());
    this.#programs.clear();
    for (const program of programs) await program.close();
  }

  async #readOutput(program: BoundProgram, { q }: AttentionCall): Promise<Float32Array> {
    const { headDim, valueDim } = this.#storage.shape;
    const y = new Float32Array((q.length / headDim) * valueDim);
    await program.read('y', y);
    return y;
  }

  async #run(result: Result, call: AttentionCall): Promise<BoundProgram> {
    const { position } = call;
    const { signal } = call.options;
    if (!Number.isInteger(position) || position !== (position | 0)) {
      throw new ArgumentError({ argument: 'position', expected: 'a 32-bit integer', actual: String(position) });
    }
    const program = await this.#programOf(result, call);
    await program.write('q', call.q);
    program.scalars.slot('positions')[0] = position;
    program.scalars.slot('contextLengths')[0] = call.numSlots;
    program.scalars.slot('blockTable').set(call.blocks);
    await program.run(signal === undefined ? {} : { signal });
    return program;
  }

  async #programOf(result: Result, { q, options }: AttentionCall): Promise<BoundProgram> {
    const { headDim, numKvHeads } = this.#storage.shape;
    const numHeads = q.length / headDim;
    if (!Number.isInteger(numHeads) || numHeads % numKvHeads !== 0 || numHeads === 0) {
      const expected = `a multiple of ${numKvHeads} heads of ${headDim}`;
      throw new ShapeError({ op: 'attend', rule: 'query', expected, actual: `${q.length} values` });
    }
    const { scale = 1 / Math.sqrt(headDim), softCap = 0, window = 0 } = options;
    const key = `${result} ${numHeads} ${scale} ${softCap} ${window}`;
    const program = this.#programs.get(key) ?? this.#prepare(result, numHeads, { scale, softCap, window });
    this.#programs.set(key, program);
    program.catch(() => void this.#programs.remove(key));
    const unused = await this.#programs.evict(maxPrograms);
    await unused?.close();
    return program;
  }

  #prepare(
    result: Result,
    numHeads: number,
    attributes: { readonly scale: number; readonly softCap: number; readonly window: number },
  ): Promise<BoundProgram> {
    const { shape, backend, buffers } = this.#storage;
    return BoundProgram.prepare({ backend, buffers }, (b) => {
      const query = b.external('q', 'kv', 'f32', [1, numHeads, shape.headDim]);
      const inputs = {
        q: shape.rotateKeys ? b.activation('hadamard', { x: query }) : query,
        positions: b.scalar('positions', [1]),
        sequences: b.scalar('sequences', [1]),
        ...externalKv(b, shape, shape.numBlocks),
        blockTable: b.scalar('blockTable', [1, this.#maxBlocks]),
        contextLengths: b.scalar('contextLengths', [1]),
      };
      if (result === 'partial') {
        const states = b.append('attention-partial', inputs, attributes);
        for (const [name, tensor] of Object.entries(states)) b.output(name, tensor);
        return;
      }
      b.output('y', b.activation('attention', inputs, attributes));
      if (result === 'mass') b.output('mass', b.activation('attention-mass', inputs, attributes));
    });
  }
}
