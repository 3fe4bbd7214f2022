/** The programs of a layer over one cache: one that appends keys and values, and one per variant that also attends. */
import {
  BoundProgram,
  externalKv,
  type Backend,
  type BufferHandle,
  type LayerAttention,
  type ProgramBuilder,
  type ProgramTensor,
  type SequenceStates,
} from '@winnow/ops';
import { lowerPolicy, type LowerPolicyOptions } from '../lowering/lower-policy.js';
import { appendSideData } from '../lowering/side-data.js';
import type { AttentionPolicy } from '../policy/kinds.js';
import type { LayerShape } from './shape.js';

/** The names of layer 0, as in `lowering/side-data.ts`. */
const cacheNames = { keys: 'kv.0.keys', values: 'kv.0.values', slotPositions: 'kv.slotPositions' } as const;

/** A variant of the attention program. */
export interface AttendVariant {
  readonly policy: AttentionPolicy;
  /** Query heads of a run: all, or one per KV head. */
  readonly numHeads: number;
  /** Report the probabilities of keys. */
  readonly mass: boolean;
  /** Take the queries for the sinks from the input `sinkQ`. */
  readonly hasSinkQueries: boolean;
  readonly maxTokens: number;
}

export interface LayerProgramsOptions {
  readonly backend: Backend;
  readonly shape: LayerShape;
  /** What its policies store besides keys and values is maintained. */
  readonly lowering: LowerPolicyOptions;
}

/** Prepares each program on first use; they share their buffers. */
export class LayerPrograms {
  readonly #options: LayerProgramsOptions;
  readonly #programs = new Map<string, Promise<BoundProgram>>();
  readonly #ready: BoundProgram[] = [];

  constructor(options: LayerProgramsOptions) {
    this.#options = options;
  }

  /** Stores `k` and `v` in slots of the cache and updates side data. */
  append(): Promise<BoundProgram> {
    return this.#prepare('append', this.#options.shape.maxTokens, (b) => this.#buildAppend(b, stepScalars(b)));
  }

  /**
   * The same, and attends with `q` over the cache; outputs have the names of the policy's op. Negative slots store
   * nothing, so that it only attends.
   */
  attend(variant: AttendVariant): Promise<BoundProgram> {
    return this.#prepare(JSON.stringify(variant), variant.maxTokens, (b) => {
      const scalars = stepScalars(b);
      this.#buildAppend(b, scalars);
      this.#buildAttend(b, scalars, variant);
    });
  }

  /** Memory of an external tensor; undefined if no prepared program has it. */
  buffer(name: string): BufferHandle | undefined {
    return this.#ready.find(({ buffers }) => buffers.has(name))?.buffer(name);
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#programs.values());
    this.#programs.clear();
    for (const program of this.#ready.splice(0).reverse()) await program.close();
  }

  #prepare(key: string, maxTokens: number, build: (b: ProgramBuilder) => void): Promise<BoundProgram> {
    let program = this.#programs.get(key);
    if (program === undefined) {
      program = this.#bind(maxTokens, build);
      this.#programs.set(key, program);
      program.catch(() => this.#programs.delete(key));
    }
    return program;
  }

  async #bind(maxTokens: number, build: (b: ProgramBuilder) => void): Promise<BoundProgram> {
    const { backend } = this.#options;
    const buffers = new Map(this.#ready.flatMap((program) => [...program.buffers]));
    const program = await BoundProgram.prepare({ backend, symbols: { T: maxTokens }, buffers }, build);
    this.#ready.push(program);
    program.scalars.slot('rows').forEach((_, row, rows) => (rows[row] = row));
    return program;
  }

  #buildAppend(b: ProgramBuilder, { rows, positions, slots }: StepScalars): void {
    const { shape, lowering } = this.#options;
    const k = stepInput(b, shape, rows, 'k', shape.numKvHeads, shape.headDim);
    const v = stepInput(b, shape, rows, 'v', shape.numKvHeads, shape.valueDim);
    const { slotPositions, keys, values } = externalKv(b, shape, shape.numBlocks, cacheNames);
    b.append('position-append', { slots, positions }, {}, { slotPositions });
    b.append('kv-append', { k, v, slots }, {}, { keys, values });
    appendSideData(b, { layer: 0, kv: { keys, values }, slots }, lowering.policies);
  }

  #buildAttend(b: ProgramBuilder, { rows, positions, slots }: StepScalars, variant: AttendVariant): void {
    const { policy, numHeads, mass, hasSinkQueries } = variant;
    const { shape, lowering } = this.#options;
    const { scale, headDim, numBlocks } = shape;
    const sequences = b.scalar('sequences', ['T']);
    const q = stepInput(b, shape, rows, queryInput(numHeads), numHeads, headDim);
    const blockTable = b.scalar('blockTable', [1, numBlocks]);
    const kv = {
      ...externalKv(b, shape, numBlocks, cacheNames),
      blockTable,
      contextLengths: b.scalar('contextLengths', [1]),
    };
    let states: SequenceStates | undefined;
    const request: LayerAttention = {
      ...{ layer: 0, q, k: q, v: q, positions, sequences, slots, kv, scale, window: 0, softCap: 0 },
      rotateQuery: () => (hasSinkQueries ? stepInput(b, shape, rows, 'sinkQ', numHeads, headDim) : q),
      states: () => {
        states ??= { numStates: 1, stateFrom: b.scalar('stateFrom', [1]), stateTo: b.scalar('stateTo', [1]) };
        return states;
      },
    };
    const isDense = policy.kind === 'dense';
    const outputs = lowerPolicy(b, request, policy, lowering, mass && !isDense);
    for (const [name, tensor] of Object.entries(outputs)) b.output(name, tensor);
    if (!mass || !isDense) return;
    b.output(
      'mass',
      b.activation('attention-mass', { q, positions, sequences, ...kv }, { scale, causal: lowering.causal ?? true }),
    );
  }
}

/** Name of the input for queries of this many heads. */
export function queryInput(numHeads: number): string {
  return `q${numHeads}`;
}

/** Scalars `[T]` of the tokens of a run. */
type StepScalars = Readonly<Record<'rows' | 'positions' | 'slots', ProgramTensor>>;

function stepScalars(b: ProgramBuilder): StepScalars {
  return { rows: b.scalar('rows', ['T']), positions: b.scalar('positions', ['T']), slots: b.scalar('slots', ['T']) };
}

/** The rows `[T, heads, dim]` of this step, which the host writes into a buffer of `maxTokens` rows. */
function stepInput(
  b: ProgramBuilder,
  { maxTokens }: LayerShape,
  rows: ProgramTensor,
  name: string,
  numHeads: number,
  dim: number,
): ProgramTensor {
  const x = b.external(name, 'kv', 'f32', [maxTokens, numHeads * dim]);
  return b.reshape(b.activation('gather-rows', { x, rows }), ['T', numHeads, dim]);
}
