/** One attention layer as programs of a backend for prefill and decode, which share the cache blocks. */
import {
  BoundProgram,
  type AttentionLowering,
  type Backend,
  type ProgramBuilder,
  type ProgramTensor,
  type SequenceStates,
} from '@winnow/ops';
import type { DType, Tensor3 } from '@winnow/tensor';
import type { AttentionPhase } from '../src/policy/kinds.js';

export interface PagedShape {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly blockSize: number;
  readonly numBlocks: number;
  readonly dtype: DType;
  /** Maximum number of tokens. */
  readonly numTokens: number;
}

/** A step over the tokens `[begin, end)` of one sequence with the block table `blocks`. */
export interface LayerStep {
  readonly phase: AttentionPhase;
  readonly begin: number;
  readonly end: number;
  readonly blocks: readonly number[];
  readonly state: number;
}

export interface LayerTensors {
  readonly q: Tensor3;
  readonly k: Tensor3;
  readonly v: Tensor3;
}

/** Runs steps; each result is `y` of the step, `[tokens, numHeads, headDim]`. */
export class PagedLayer {
  readonly #shape: PagedShape;
  readonly #programs: Readonly<Record<AttentionPhase, BoundProgram>>;

  private constructor(shape: PagedShape, programs: Readonly<Record<AttentionPhase, BoundProgram>>) {
    this.#shape = shape;
    this.#programs = programs;
  }

  static async create(
    backend: Backend,
    lowerings: Readonly<Record<AttentionPhase, AttentionLowering>>,
    tensors: LayerTensors,
    shape: PagedShape,
  ): Promise<PagedLayer> {
    const symbols = { T: shape.numTokens, B: 1 };
    const options = { backend, symbols, onUnsupported: 'error' } as const;
    const prefill = await BoundProgram.prepare(options, (b) => buildStep(b, shape, lowerings.prefill));
    const { buffers } = prefill;
    const decode = await BoundProgram.prepare({ ...options, buffers }, (b) => buildStep(b, shape, lowerings.decode));
    for (const program of [prefill, decode]) {
      for (const [name, buffer] of program.buffers) {
        // caches start with arbitrary contents
        const bytes = new Uint8Array(buffer.sizeBytes).fill(name.endsWith('slotPositions') ? 0xff : 7);
        await backend.write(buffer, 0, bytes);
      }
    }
    for (const [name, { data }] of Object.entries(tensors) as [string, Tensor3][]) await prefill.write(name, data);
    return new PagedLayer(shape, { prefill, decode });
  }

  async run({ phase, begin, end, blocks, state }: LayerStep): Promise<Float32Array> {
    const { blockSize, numHeads, headDim } = this.#shape;
    const program = this.#programs[phase];
    const { scalars } = program;
    scalars.bind('T', end - begin);
    scalars.bind('B', 1);
    for (let i = 0; i < end - begin; i++) {
      const position = begin + i;
      const block = blocks[Math.floor(position / blockSize)] ?? 0;
      scalars.slot('rows')[i] = position;
      scalars.slot('positions')[i] = position;
      scalars.slot('slots')[i] = block * blockSize + (position % blockSize);
    }
    scalars.slot('contextLengths').fill(end);
    scalars.slot('blockTable').set(blocks);
    scalars.slot('stateFrom').fill(begin === 0 ? -1 : state);
    scalars.slot('stateTo').fill(state);
    await program.run();
    const out = new Float32Array((end - begin) * numHeads * headDim);
    await program.read('y', out);
    return out;
  }

  /** Reads another output of the last step of a phase. */
  read(phase: AttentionPhase, name: string, target: Float32Array): Promise<void> {
    return this.#programs[phase].read(name, target);
  }

  async dispose(): Promise<void> {
    await this.#programs.decode.close();
    await this.#programs.prefill.close();
  }
}

function buildStep(b: ProgramBuilder, shape: PagedShape, lowering: AttentionLowering): void {
  const { numHeads, numKvHeads, headDim, blockSize, numBlocks, dtype, numTokens } = shape;
  const [rows, positions, sequences, slots] = ['rows', 'positions', 'sequences', 'slots'].map((name) =>
    b.scalar(name, ['T']),
  ) as [ProgramTensor, ProgramTensor, ProgramTensor, ProgramTensor];
  const gather = (name: string, heads: number): ProgramTensor => {
    const x = b.external(name, 'kv', 'f32', [numTokens, heads * headDim]);
    return b.reshape(b.activation('gather-rows', { x, rows }), ['T', heads, headDim]);
  };
  const step = { q: gather('q', numHeads), k: gather('k', numKvHeads), v: gather('v', numKvHeads) };
  const slotPositions = b.external('kv.slotPositions', 'kv', 'i32', [numBlocks, blockSize]);
  b.append('position-append', { slots, positions }, {}, { slotPositions });
  const cacheShape = [numBlocks, numKvHeads, blockSize, headDim];
  const kv = {
    keys: b.external('kv.0.keys', 'kv', dtype, cacheShape),
    values: b.external('kv.0.values', 'kv', dtype, cacheShape),
    slotPositions,
    blockTable: b.scalar('blockTable', ['B', numBlocks]),
    contextLengths: b.scalar('contextLengths', ['B']),
  };
  b.append('kv-append', { k: step.k, v: step.v, slots }, {}, { keys: kv.keys, values: kv.values });
  const states: SequenceStates = {
    numStates: 2,
    stateFrom: b.scalar('stateFrom', ['B']),
    stateTo: b.scalar('stateTo', ['B']),
  };
  const y = lowering(b, {
    ...{ layer: 0, ...step, positions, sequences, slots, kv, scale: 1 / Math.sqrt(headDim), window: 0, softCap: 0 },
    rotateQuery: () => step.q,
    states: () => states,
  });
  b.output('y', y);
}
