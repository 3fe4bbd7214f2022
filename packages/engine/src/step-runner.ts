/**
 * Runs steps of one sequence on the prepared programs of a model: fills the scalar block, executes, reads outputs. The
 * cache is shared by all sessions; a step names its slots through the sequence's block table.
 */
import { createScalarBlock, type Executable, type RecordProfile, type ScalarBlock } from '@winnow/ops';
import { createTurnstile } from './turnstile.js';

/** A sequence as a step sees it. */
export interface SequenceCache {
  /** Blocks in logical order, enough for `begin + count` slots. */
  readonly blocks: readonly number[];
}

export interface Step {
  readonly cache: SequenceCache;
  /** The step computes `tokens[offset, offset + count)`, which stand at the positions from `begin` on. */
  readonly tokens: ArrayLike<number>;
  readonly offset: number;
  readonly begin: number;
  readonly count: number;
  /** Which of the step's tokens need logits, relative to `begin`. */
  readonly outputRows: readonly number[];
  readonly signal: AbortSignal | undefined;
}

/** What can be read of the step that just ran, before another one runs. */
export type ReadOutput = (output: string, target: Float32Array | Int32Array) => Promise<void>;

export interface StepRunner {
  /** Most tokens of one step. */
  readonly maxTokens: number;
  /** Most output rows of one step. */
  readonly maxOutputRows: number;
  /** Runs a step, then `read` while its outputs are still there. Steps of different sessions take turns. */
  run(step: Step, read?: (output: ReadOutput) => Promise<void>): Promise<void>;
  profile(): RecordProfile[];
  /** Disposes the programs after the step that is running. */
  dispose(): Promise<void>;
}

interface Prepared {
  readonly executable: Executable;
  readonly scalars: ScalarBlock;
  readonly maxTokens: number;
}

/** @param decode a program for one token; `prefill` a program for many */
export function createStepRunner(decode: Executable, prefill: Executable, blockSize: number): StepRunner {
  const prepare = (executable: Executable): Prepared => ({
    executable,
    scalars: createScalarBlock(executable.program.scalars, executable.program.symbols),
    maxTokens: executable.program.symbols.get('T') as number,
  });
  const single = prepare(decode);
  const many = prepare(prefill);
  const turnstile = createTurnstile();
  return {
    maxTokens: many.maxTokens,
    maxOutputRows: prefill.program.symbols.get('R') as number,
    run(step, read) {
      return turnstile.run(async () => {
        const { executable, scalars } = step.count === 1 ? single : many;
        fillScalars(scalars, step, blockSize);
        await executable.run(scalars.words, step.signal === undefined ? {} : { signal: step.signal });
        await read?.((output, target) => executable.read(output, target));
      });
    },
    profile: () => [...decode.profile(), ...prefill.profile()],
    async dispose() {
      await turnstile.run(async () => {
        await Promise.all([decode.dispose(), prefill.dispose()]);
      });
    },
  };
}

function fillScalars(
  scalars: ScalarBlock,
  { cache, tokens, offset, begin, count, outputRows }: Step,
  blockSize: number,
): void {
  scalars.bind('T', count);
  scalars.bind('B', 1);
  scalars.bind('R', outputRows.length);
  const ids = scalars.slot('tokens');
  const positions = scalars.slot('positions');
  const sequences = scalars.slot('sequences');
  const slots = scalars.slot('slots');
  for (let i = 0; i < count; i++) {
    const position = begin + i;
    ids[i] = tokens[offset + i] as number;
    positions[i] = position;
    sequences[i] = 0;
    slots[i] = (cache.blocks[Math.floor(position / blockSize)] as number) * blockSize + (position % blockSize);
  }
  scalars.slot('outputRows').set(outputRows);
  scalars.slot('contextLengths')[0] = begin + count;
  scalars.slot('blockTable').set(cache.blocks);
}
