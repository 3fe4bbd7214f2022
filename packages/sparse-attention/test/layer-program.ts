/** One layer of attention as programs of a backend, for prompts and for single tokens, over a cache that both share. */
import {
  createScalarBlock,
  ProgramBuilder,
  type AttentionLowering,
  type Backend,
  type BufferHandle,
  type Executable,
} from '@winnow/ops';
import type { DType, Tensor3 } from '@winnow/tensor';
import type { AttentionPhase } from '../src/policy/policy-types.js';

export interface LayerShape {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly blockSize: number;
  readonly numBlocks: number;
  readonly dtype: DType;
  /** Tokens that there are at all. */
  readonly numTokens: number;
}

/** The tokens `[begin, end)` of a step, of one sequence whose blocks lie in the order of `blocks`. */
export interface LayerStep {
  readonly phase: AttentionPhase;
  readonly begin: number;
  readonly end: number;
  readonly blocks: readonly number[];
  readonly state: number;
}

/** Runs steps; the result is `y` of the step, `[tokens, numHeads, headDim]`. */
export interface LayerRunner {
  run(step: LayerStep): Promise<Float32Array>;
  /** Another output of the last step of a phase. */
  read(phase: AttentionPhase, name: string, target: Float32Array): Promise<void>;
  dispose(): Promise<void>;
}

export async function createLayer(
  backend: Backend,
  writers: Readonly<Record<AttentionPhase, AttentionLowering>>,
  q: Tensor3,
  k: Tensor3,
  v: Tensor3,
  shape: LayerShape,
): Promise<LayerRunner> {
  const { numHeads, numKvHeads, headDim, blockSize, numBlocks, dtype, numTokens } = shape;
  const buffers = new Map<string, BufferHandle>();
  const phases = new Map<AttentionPhase, (step: LayerStep) => Promise<Float32Array>>();
  const contents = new Map<string, Float32Array>([
    ['q', q.data],
    ['k', k.data],
    ['v', v.data],
  ]);
  const executables = new Map<AttentionPhase, Executable>();
  for (const phase of ['prefill', 'decode'] as const) {
    const b = new ProgramBuilder({ T: numTokens, B: 1 });
    const rows = b.scalar('rows', ['T']);
    const [positions, sequences, slots] = ['positions', 'sequences', 'slots'].map((name) => b.scalar(name, ['T']));
    if (positions === undefined || sequences === undefined || slots === undefined) throw new Error('three scalars');
    const gather = (name: string, heads: number): ReturnType<ProgramBuilder['external']> => {
      const x = b.external(name, 'weights', 'f32', [numTokens, heads * headDim]);
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
    let states: { stateFrom: typeof rows; stateTo: typeof rows } | undefined;
    const y = writers[phase](b, {
      ...{ layer: 0, ...step, positions, sequences, slots, kv, scale: 1 / Math.sqrt(headDim), window: 0, softCap: 0 },
      rotateQuery: () => step.q,
      states: () => {
        states ??= { stateFrom: b.scalar('stateFrom', ['B']), stateTo: b.scalar('stateTo', ['B']) };
        return { numStates: 2, ...states };
      },
    });
    b.output('y', y);
    const program = b.build();
    for (const { name, usage, sizeBytes } of program.buffers) {
      if ((usage !== 'weights' && usage !== 'kv') || buffers.has(name)) continue;
      const buffer = backend.allocate({ sizeBytes, usage, label: name });
      const content = contents.get(name);
      // memory of caches may hold anything before
      const bytes =
        content === undefined
          ? new Uint8Array(sizeBytes).fill(name.endsWith('slotPositions') ? 0xff : 7)
          : new Uint8Array(content.buffer, content.byteOffset, sizeBytes);
      await backend.write(buffer, 0, bytes);
      buffers.set(name, buffer);
    }
    const executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
    executables.set(phase, executable);
    const scalars = createScalarBlock(program.scalars, program.symbols);
    phases.set(phase, async ({ begin, end, blocks, state }) => {
      const count = end - begin;
      scalars.bind('T', count);
      scalars.bind('B', 1);
      for (let i = 0; i < count; i++) {
        const position = begin + i;
        const block = blocks[Math.floor(position / blockSize)] ?? 0;
        scalars.slot('rows')[i] = position;
        scalars.slot('positions')[i] = position;
        scalars.slot('slots')[i] = block * blockSize + (position % blockSize);
      }
      scalars.slot('sequences').fill(0);
      scalars.slot('contextLengths').fill(end);
      scalars.slot('blockTable').set(blocks);
      if (states !== undefined) {
        scalars.slot('stateFrom').fill(begin === 0 ? -1 : state);
        scalars.slot('stateTo').fill(state);
      }
      await executable.run(scalars.words);
      const out = new Float32Array(count * numHeads * headDim);
      await executable.read('y', out);
      return out;
    });
  }
  return {
    run: (step) => (phases.get(step.phase) as (step: LayerStep) => Promise<Float32Array>)(step),
    read: (phase, name, target) => (executables.get(phase) as Executable).read(name, target),
    async dispose() {
      for (const executable of executables.values()) await executable.dispose();
    },
  };
}
