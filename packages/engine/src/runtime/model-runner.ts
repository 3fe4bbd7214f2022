/** Runs batches of the scheduler on the programs of a model, and counts steps. */
import type { Executable, RecordProfile } from '@winnow/ops';
import type { TierStream } from '../kv-offload/stream.js';
import type { KvMemory } from '../memory/kv-memory.js';
import type { StepPhase } from '../plan/attention-plan.js';
import type { StepPart } from './sequence.js';
import { StepProgram } from './step-program.js';

/** Prepared programs by kind of step. */
export interface StepExecutables {
  /** One token of one sequence. */
  readonly decode: Executable;
  /** Tokens of several sequences: prefill, and also decode if both have the same policy. */
  readonly batch: Executable;
  /** Otherwise: decode of several sequences, if several may run. */
  readonly decodeBatch: Executable | undefined;
}

export interface ModelRunnerOptions {
  readonly executables: StepExecutables;
  /** The same programs for sequences that attend to offloaded pages. */
  readonly offloaded: StepExecutables | undefined;
  readonly stream: TierStream | undefined;
  /** Whether prefill and decode have the same attention policy, so that they share steps. */
  readonly isUniform: boolean;
  readonly maxBlocksPerSequence: number;
  readonly memory: KvMemory;
  readonly now: () => number;
}

interface StepPrograms {
  readonly decode: StepProgram;
  readonly batch: StepProgram;
  readonly decodeBatch: StepProgram | undefined;
}

export class ModelRunner {
  readonly isUniform: boolean;
  readonly #resident: StepPrograms;
  readonly #offloaded: StepPrograms | undefined;
  readonly #memory: KvMemory;
  readonly #now: () => number;
  #numSteps = 0;
  #numSharedSteps = 0;
  #stepMs = 0;

  constructor(options: ModelRunnerOptions) {
    const { executables, offloaded, stream, maxBlocksPerSequence } = options;
    this.isUniform = options.isUniform;
    this.#resident = createPrograms(executables, maxBlocksPerSequence, undefined);
    this.#offloaded = offloaded && createPrograms(offloaded, maxBlocksPerSequence, stream);
    this.#memory = options.memory;
    this.#now = options.now;
  }

  /** The program whose limits a batch of this phase must respect. */
  programFor(phase: StepPhase): StepProgram {
    const { decode, batch, decodeBatch } = this.#resident;
    return this.isUniform || phase === 'prefill' ? batch : (decodeBatch ?? decode);
  }

  /** Runs parts whose sequences have slots for them, all of one phase unless phases are uniform. */
  async run(parts: readonly StepPart[], phase: StepPhase, signal: AbortSignal | undefined): Promise<StepProgram> {
    const program = this.#select(parts, phase);
    const pending = this.#memory.flush();
    if (pending !== undefined) await pending;
    const startMs = this.#now();
    await program.run(parts, signal);
    this.#stepMs += this.#now() - startMs;
    this.#numSteps++;
    if (parts.length > 1) this.#numSharedSteps++;
    return program;
  }

  statistics(): { readonly numSteps: number; readonly numSharedSteps: number; readonly stepMs: number } {
    return { numSteps: this.#numSteps, numSharedSteps: this.#numSharedSteps, stepMs: this.#stepMs };
  }

  profile(): RecordProfile[] {
    return [this.#resident, this.#offloaded].flatMap((programs) =>
      [programs?.decode, programs?.batch, programs?.decodeBatch].flatMap((program) => program?.profile() ?? []),
    );
  }

  #select(parts: readonly StepPart[], phase: StepPhase): StepProgram {
    const isOffloaded = parts.some(({ sequence }) => sequence.view.detachedPages.length > 0);
    const { decode, batch, decodeBatch } = (isOffloaded ? this.#offloaded : undefined) ?? this.#resident;
    const isOneToken = parts.length === 1 && parts[0]?.count === 1;
    if (this.isUniform) return isOneToken ? decode : batch;
    if (phase === 'prefill') return batch;
    return isOneToken ? decode : (decodeBatch ?? decode);
  }
}

function createPrograms(
  { decode, batch, decodeBatch }: StepExecutables,
  maxBlocksPerSequence: number,
  stream: TierStream | undefined,
): StepPrograms {
  const create = (executable: Executable, selectsPages: boolean): StepProgram =>
    new StepProgram(executable, { maxBlocksPerSequence, stream, selectsPages });
  return {
    decode: create(decode, true),
    batch: create(batch, false),
    decodeBatch: decodeBatch && create(decodeBatch, true),
  };
}
