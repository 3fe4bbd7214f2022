/** Runs batches of the scheduler on the programs of a model, and counts steps. */
import type { Executable, RecordProfile } from '@winnow/ops';
import type { TierStream } from '../kv-offload/stream.js';
import { ArgumentError } from '@winnow/tensor';
import { isImageId } from '../images/image-rows.js';
import type { StepImagesParts } from '../images/step-images.js';
import type { KvMemory } from '../memory/kv-memory.js';
import type { StepPhase } from '../plan/attention-plan.js';
import type { Sequence, StepPart } from './sequence.js';
import { StepProgram, type StepProgramOptions } from './step-program.js';
import type { VisitedKeys } from './visited-keys.js';

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
  /** The program that drafts with the weights and the cache of the model, one token per run. */
  readonly drafting: Executable | undefined;
  /** The program of steps of the rows of one image, where they attend to each other. */
  readonly image: Executable | undefined;
  /** Counts the keys that steps visit, except those with offloaded pages. */
  readonly visitedKeys: VisitedKeys | undefined;
  /** Whether prefill and decode have the same attention policy, so that they share steps. */
  readonly isUniform: boolean;
  /**
   * Whether a step may decode several tokens of one sequence. Generated tokens then have the bits of steps of their own: they never share
   * one with a chunk of a prompt, and at most `maxInvariantTokens` share one.
   */
  readonly verifiesDrafts: boolean;
  readonly maxBlocksPerSequence: number;
  /** For models that take images. */
  readonly images: StepImagesParts | undefined;
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
  readonly verifiesDrafts: boolean;
  /** Whether tokens of both phases run in steps of their own. */
  readonly separatesPhases: boolean;
  readonly #resident: StepPrograms;
  readonly #offloaded: StepPrograms | undefined;
  readonly #drafting: StepProgram | undefined;
  readonly #image: StepProgram | undefined;
  readonly #memory: KvMemory;
  readonly #now: () => number;
  #numSteps = 0;
  #numSharedSteps = 0;
  #stepMs = 0;

  constructor(options: ModelRunnerOptions) {
    const { executables, offloaded, stream, drafting, image, maxBlocksPerSequence, images } = options;
    this.isUniform = options.isUniform;
    this.verifiesDrafts = options.verifiesDrafts;
    this.separatesPhases = !options.isUniform || options.verifiesDrafts;
    const counters = (executable: Executable): Pick<StepProgramOptions, 'counter' | 'images'> => ({
      counter: options.visitedKeys?.counterFor(executable),
      images,
    });
    this.#resident = createPrograms(executables, maxBlocksPerSequence, counters);
    this.#offloaded = offloaded && createPrograms(offloaded, maxBlocksPerSequence, () => ({ stream, images }));
    this.#drafting = drafting && new StepProgram(drafting, { maxBlocksPerSequence, images });
    this.#image = image && new StepProgram(image, { maxBlocksPerSequence, images });
    this.#memory = options.memory;
    this.#now = options.now;
  }

  /** The program whose limits a batch of this phase must respect. */
  programFor(phase: StepPhase): StepProgram {
    const { decode, batch, decodeBatch } = this.#resident;
    return this.isUniform || phase === 'prefill' ? batch : (decodeBatch ?? decode);
  }

  /** Maximum number of rows of an image that need a step of their own; 0 if they are treated like other tokens. */
  get maxImageRows(): number {
    return this.#image?.maxTokens ?? 0;
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

  /** Whether there is a program that drafts. */
  get canDraft(): boolean {
    return this.#drafting !== undefined;
  }

  /**
   * The most probable tokens after `known`, the last tokens of the text, which the cache lacks: each run appends one, and in the end all
   * are taken back, so that verification computes their keys and values anew. Nothing for a preempted sequence.
   * @throws {CapacityError} when the cache has no room for them
   */
  async draft(sequence: Sequence, known: readonly number[], count: number): Promise<readonly number[]> {
    if (sequence.preempted !== undefined) return [];
    const program = this.#drafting as StepProgram;
    const drafted: number[] = [];
    const tokens = new Int32Array(1);
    const best = new Int32Array(1);
    const part: StepPart = { sequence, tokens, offset: 0, count: 1, outputRows: [0] };
    try {
      for (let i = 0; drafted.length < count; i++) {
        tokens[0] = known[i] ?? (drafted.at(-1) as number);
        sequence.append(tokens);
        const pending = this.#memory.flush();
        if (pending !== undefined) await pending;
        await program.run([part], undefined);
        if (i < known.length - 1) continue;
        await program.rows(0)(0)('topIndices', best);
        drafted.push(best[0] as number);
      }
    } finally {
      sequence.rollback();
    }
    return drafted;
  }

  statistics(): { readonly numSteps: number; readonly numSharedSteps: number; readonly stepMs: number } {
    return { numSteps: this.#numSteps, numSharedSteps: this.#numSharedSteps, stepMs: this.#stepMs };
  }

  profile(): RecordProfile[] {
    const all = [this.#resident, this.#offloaded].flatMap((programs) => [
      programs?.decode,
      programs?.batch,
      programs?.decodeBatch,
    ]);
    return [...all, this.#drafting, this.#image].flatMap((program) => program?.profile() ?? []);
  }

  #select(parts: readonly StepPart[], phase: StepPhase): StepProgram {
    const [{ tokens, offset }] = parts as readonly [StepPart];
    const isImage = this.#image !== undefined && isImageId(tokens[offset] as number);
    const isOffloaded = parts.some(({ sequence }) => sequence.view.detachedPages.length > 0);
    if (isImage && isOffloaded) {
      const expected = 'no tiers that hold tokens before an image, which this model attends to as a whole';
      throw new ArgumentError({ argument: 'kvCache', expected, actual: 'offloaded pages' });
    }
    if (isImage) return this.#image as StepProgram;
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
  optionsOf: (executable: Executable) => Partial<StepProgramOptions>,
): StepPrograms {
  const create = (executable: Executable, selectsPages: boolean): StepProgram =>
    new StepProgram(executable, { maxBlocksPerSequence, selectsPages, ...optionsOf(executable) });
  return {
    decode: create(decode, true),
    batch: create(batch, false),
    decodeBatch: decodeBatch && create(decodeBatch, true),
  };
}
