/**
 * Continuous batching. Sequences ask for steps; whatever is asked for at a time runs as one program: single tokens of
 * several sequences beside chunks of prompts. Sequences join and leave from step to step. A sequence that is alone runs
 * on a program of its own, without detours.
 *
 * A step is all or nothing for each sequence: what it appended is committed after its outputs were read, or rolled back.
 */
import type { Executable, RecordProfile } from '@winnow/ops';
import { CapacityError, ReleasedError } from '@winnow/tensor';
import { gather } from './gather.js';
import type { KvTiers, RoomRequest } from '../kv-offload/offloader.js';
import type { StepMetrics } from '../metrics/model-metrics.js';
import type { KvPool, Sequence } from './sequence.js';
import type { ReadOutput } from '../memory/step-outputs.js';
import { createStepProgram, type StepPart, type StepProgram } from './step-program.js';
import { choosePreemption, type WhenFull } from './preemption.js';
import type { StepPhase } from '../plan/attention-plan.js';

/** What a sequence wants computed: `tokens[offset, offset + count)`, at most a chunk. */
export interface StepRequest {
  readonly sequence: Sequence;
  readonly phase: StepPhase;
  readonly tokens: Int32Array;
  readonly offset: number;
  readonly count: number;
  /** Which of the tokens need logits, relative to `offset`. */
  readonly outputRows: readonly number[];
  readonly signal: AbortSignal | undefined;
  /** Reads the outputs while they are there. */
  readonly read: ((output: ReadOutput) => Promise<void>) | undefined;
}

export interface Scheduler {
  /** Most tokens of one request. */
  readonly maxChunk: number;
  /** Most output rows of one request. */
  readonly maxOutputRows: number;
  /** @throws {CapacityError} when the cache is full and the policy is `error` */
  run(request: StepRequest): Promise<void>;
  /** A generation begins: others wait a moment for its next step. Call the result when it ends. */
  enter(sequence: Sequence): () => void;
  /** Runs a task while no step does. */
  exclusive<T>(task: () => Promise<T>): Promise<T>;
  /** Blocks may have become free. */
  wake(): void;
  profile(): RecordProfile[];
  statistics(): StepMetrics;
  /** Disposes the programs after the step that is running; what waits is refused. */
  dispose(): Promise<void>;
}

interface Entry {
  readonly request: StepRequest;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  /** It failed together with others: once more, without them. */
  isAlone: boolean;
  isWaitingForRoom: boolean;
}

interface PlannedPart extends StepPart {
  readonly entry: Entry;
  readonly phase: StepPhase;
  /** Nothing of the request is left after it. */
  readonly isLast: boolean;
}

export interface SchedulerOptions {
  /** A program for one token of one sequence. */
  readonly decode: Executable;
  /** A program for the tokens of several sequences. */
  readonly batch: Executable;
  /** Whether generated tokens attend in the same way as prompts: then they share steps. */
  readonly isUniform: boolean;
  /** Otherwise: a program for generated tokens of several sequences, where there may be several. */
  readonly decodeBatch: Executable | undefined;
  /** The same programs for sequences with pages outside the pool that are attended to: where it has tiers. */
  readonly tiered?:
    | { readonly decode: Executable; readonly batch: Executable; readonly decodeBatch: Executable | undefined }
    | undefined;
  readonly maxChunk: number;
  readonly maxBlocksPerSequence: number;
  readonly whenFull: WhenFull;
  readonly now: () => number;
}

export function createScheduler(pool: Omit<KvPool, 'onFreed'>, options: SchedulerOptions): Scheduler {
  const { manager, memory, tiers } = pool;
  const { maxChunk, whenFull, tiered, now } = options;
  const single = createStepProgram(options.decode, options.maxBlocksPerSequence);
  const many = createStepProgram(options.batch, options.maxBlocksPerSequence);
  const manyDecode = options.decodeBatch && createStepProgram(options.decodeBatch, options.maxBlocksPerSequence);
  const createTiered = (executable: Executable, phase: StepPhase): StepProgram =>
    createStepProgram(executable, options.maxBlocksPerSequence, tiers?.stream, phase === 'decode');
  const singleTiered = tiered && createTiered(tiered.decode, 'decode');
  const manyTiered = tiered && createTiered(tiered.batch, 'prefill');
  const manyTieredDecode = tiered?.decodeBatch && createTiered(tiered.decodeBatch, 'decode');
  /** Where generated tokens go when they cannot go with prompts. */
  const decodeLane = options.isUniform ? undefined : (manyDecode ?? single);
  const executables = [
    options.decode,
    options.batch,
    ...(options.decodeBatch ? [options.decodeBatch] : []),
    ...(tiered ? [tiered.decode, tiered.batch] : []),
    ...(tiered?.decodeBatch ? [tiered.decodeBatch] : []),
  ];
  const tasks: (() => Promise<void>)[] = [];
  /** Generations in progress, oldest first. */
  const active = new Set<Sequence>();
  let entries: Entry[] = [];
  let isBusy = false;
  let isDisposed = false;
  let numSteps = 0;
  let numSharedSteps = 0;
  let numTokens = 0;
  let numPreemptions = 0;
  let stepMs = 0;

  function programFor(parts: readonly StepPart[], phase: StepPhase): StepProgram {
    const isOne = parts.length === 1 && parts[0]?.appended.slots.length === 1;
    const isTiered = parts.some(({ sequence }) => sequence.view.detachedPages.length > 0);
    const [forOne, forMany, forDecode] =
      isTiered && manyTiered !== undefined && singleTiered !== undefined
        ? [singleTiered, manyTiered, manyTieredDecode]
        : [single, many, manyDecode];
    if (decodeLane === undefined) return isOne ? forOne : forMany;
    return phase === 'prefill' ? forMany : isOne ? forOne : (forDecode ?? forOne);
  }

  /** Runs parts, of one phase where phases differ, that have their slots. */
  async function runParts(
    parts: readonly StepPart[],
    phase: StepPhase,
    signal: AbortSignal | undefined,
  ): Promise<StepProgram> {
    const program = programFor(parts, phase);
    const pending = memory.flush();
    if (pending !== undefined) await pending;
    const start = now();
    await program.run(parts, signal);
    stepMs += now() - start;
    numSteps++;
    if (parts.length > 1) numSharedSteps++;
    return program;
  }

  /** The short way of a sequence that has the model to itself. */
  async function runDirectly(request: StepRequest): Promise<void> {
    const { sequence, phase, tokens, offset, count, outputRows, signal, read } = request;
    isBusy = true;
    try {
      signal?.throwIfAborted();
      if (tiers !== undefined) await tiers.makeRoom([{ view: sequence.view, numTokens: count }]);
      const wanted = count === tokens.length ? tokens : tokens.subarray(offset, offset + count);
      const appended = sequence.append(wanted);
      const program = await runParts([{ sequence, tokens, offset, appended, outputRows }], phase, signal);
      if (read !== undefined) await read(program.reader(0));
      sequence.commit(program.hasState, program.massesOf(0, sequence));
      numTokens += count;
    } catch (error) {
      sequence.rollback();
      throw error;
    } finally {
      isBusy = false;
      if (tasks.length > 0 || entries.length > 0) void loop();
    }
  }

  function settle(entry: Entry, error?: unknown): void {
    entries = entries.filter((other) => other !== entry);
    entry.request.signal?.removeEventListener('abort', wake);
    if (error === undefined) entry.resolve();
    else entry.reject(error);
  }

  function roomFor({ view }: Sequence, count: number): { neededBlocks: number; availableBlocks: number } {
    const { numFreeBlocks, numCachedBlocks } = manager.usage();
    const neededBlocks = manager.countNewBlocks(view.id, count);
    return { neededBlocks, availableBlocks: numFreeBlocks + numCachedBlocks };
  }

  function hasRoom(sequence: Sequence, count: number): boolean {
    const { neededBlocks, availableBlocks } = roomFor(sequence, count);
    return neededBlocks <= availableBlocks;
  }

  /** Lets blocks leave the pool for what comes next; who finds no room because that failed is told why. */
  async function makeRoom({ makeRoom: make, isReady }: KvTiers): Promise<void> {
    const next = ({ request }: Entry): RoomRequest => {
      const { sequence, count } = request;
      const { view, lost } = sequence;
      return { view, numTokens: lost === undefined ? count : Math.min(maxChunk, lost.length - view.numTokens) };
    };
    try {
      await make(entries.map(next));
    } catch (error) {
      for (const entry of entries) {
        const { view, numTokens: wanted } = next(entry);
        if (!manager.canAppend(view.id, wanted) || !isReady(view)) settle(entry, error);
      }
    }
  }

  /** What of a request runs next; `undefined` while it has to wait for room. @throws {CapacityError} */
  function planPart(entry: Entry): PlannedPart | undefined {
    const { sequence, phase, tokens, offset, count, outputRows } = entry.request;
    const { lost, view } = sequence;
    const done = view.numTokens;
    const part =
      lost === undefined
        ? { tokens, offset, count, outputRows, isLast: true }
        : { tokens: lost, offset: done, count: Math.min(maxChunk, lost.length - done), outputRows: [], isLast: false };
    // a sequence that was preempted comes back when there is room for all of it, in the pool or below it
    const isBack = lost === undefined || done > 0 || tiers !== undefined || hasRoom(sequence, lost.length + count);
    if (whenFull === 'wait' && !(isBack && hasRoom(sequence, part.count))) {
      if (!entry.isWaitingForRoom) {
        entry.request.signal?.addEventListener('abort', wake);
        pool.report({ kind: 'waiting', ...roomFor(sequence, part.count) });
      }
      entry.isWaitingForRoom = true;
      return undefined;
    }
    const appended = sequence.append(part.tokens.subarray(part.offset, part.offset + part.count));
    entry.isWaitingForRoom = false;
    return { entry, sequence, phase, appended, ...part };
  }

  /** What runs next: one program, or one for each phase. */
  function plan(): PlannedPart[][] {
    for (const entry of entries) if (entry.request.signal?.aborted === true) settle(entry, entry.request.signal.reason);
    const alone = entries.find((entry) => entry.isAlone);
    if (alone !== undefined) return [planStep(many, [alone])];
    if (decodeLane === undefined) return [planStep(many, entries)];
    const ofPhase = (phase: StepPhase): Entry[] => entries.filter(({ request }) => request.phase === phase);
    return [planStep(decodeLane, ofPhase('decode')), planStep(many, ofPhase('prefill'))];
  }

  /** Single tokens first, then chunks; a chunk that waits gets a place. What does not fit stays for the next step. */
  function planStep(program: StepProgram, candidates: readonly Entry[]): PlannedPart[] {
    const isSingle = ({ request }: Entry): boolean => request.count === 1 && request.sequence.lost === undefined;
    const singles = candidates.filter(isSingle);
    const chunks = candidates.filter((entry) => !isSingle(entry));
    const numForSingles = chunks.length > 0 ? Math.max(1, program.maxSequences - 1) : program.maxSequences;
    const ordered = [...singles.slice(0, numForSingles), ...chunks];
    const parts: PlannedPart[] = [];
    let freeTokens = program.maxTokens;
    let freeRows = program.maxOutputRows;
    for (const entry of ordered) {
      if (parts.length === program.maxSequences) break;
      const { count, outputRows, sequence } = entry.request;
      const numPart = sequence.lost === undefined ? count : maxChunk;
      if (numPart > freeTokens || outputRows.length > freeRows) continue;
      try {
        const part = planPart(entry);
        if (part === undefined) continue;
        parts.push(part);
        freeTokens -= part.appended.slots.length;
        freeRows -= part.outputRows.length;
      } catch (error) {
        sequence.rollback();
        settle(entry, error);
      }
    }
    return parts;
  }

  async function runBatch(parts: readonly PlannedPart[]): Promise<void> {
    let program: StepProgram;
    try {
      const [first] = parts as [PlannedPart, ...PlannedPart[]];
      program = await runParts(parts, first.phase, parts.length === 1 ? first.entry.request.signal : undefined);
    } catch (error) {
      const canTellApart = parts.length > 1 && !ReleasedError.isInstance(error);
      for (const { entry, sequence } of parts) {
        sequence.rollback();
        if (canTellApart) entry.isAlone = true;
        else settle(entry, error);
      }
      return;
    }
    let firstRow = 0;
    for (const [index, { entry, sequence, appended, outputRows, isLast }] of parts.entries()) {
      try {
        if (isLast) await entry.request.read?.(program.reader(firstRow));
        sequence.commit(program.hasState, program.massesOf(index, sequence));
        numTokens += appended.slots.length;
        entry.isAlone = false;
        if (isLast) settle(entry);
      } catch (error) {
        sequence.rollback();
        settle(entry, error);
      }
      firstRow += outputRows.length;
    }
  }

  /** Nobody can go on: makes room, or refuses who can never have any. Returns whether something changed. */
  function resolveFull(): boolean {
    const waiting = new Set(entries.map(({ request }) => request.sequence));
    const choice = choosePreemption(manager, active, waiting, options.isUniform);
    if (choice === undefined) return false;
    if (choice.kind === 'preempt') {
      pool.report({ kind: 'preempted', numTokens: choice.sequence.view.numTokens });
      choice.sequence.preempt();
      numPreemptions++;
      return true;
    }
    const entry = entries.find(({ request }) => request.sequence === choice.sequence) as Entry;
    const { neededBlocks: needed, availableBlocks: available } = roomFor(choice.sequence, entry.request.count);
    const hint = 'nobody who holds blocks will give any back';
    settle(entry, new CapacityError({ resource: 'kv cache', needed, available, unit: 'blocks', hint }));
    return true;
  }

  async function loop(): Promise<void> {
    if (isBusy) return;
    isBusy = true;
    try {
      for (;;) {
        const task = tasks.shift();
        if (task !== undefined) {
          await task();
          continue;
        }
        if (isDisposed) for (const entry of entries) settle(entry, new ReleasedError('model'));
        if (entries.length === 0) break;
        await gather(() => tasks.length > 0 || numReady() >= active.size);
        if (tiers !== undefined) await makeRoom(tiers);
        const steps = plan().filter((parts) => parts.length > 0);
        for (const parts of steps) await runBatch(parts);
        if (steps.length > 0) continue;
        if (tasks.length === 0 && entries.length > 0 && !resolveFull()) break;
      }
    } finally {
      isBusy = false;
    }
  }

  /** Sequences that have said what they want. */
  function numReady(): number {
    let count = 0;
    for (const { request } of entries) if (active.has(request.sequence)) count++;
    return count;
  }

  function wake(): void {
    if (!isBusy && (entries.length > 0 || tasks.length > 0)) void loop();
  }

  function exclusive<T>(task: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      tasks.push(() => task().then(resolve, reject));
      wake();
    });
  }

  return {
    maxChunk,
    maxOutputRows: many.maxOutputRows,
    run(request): Promise<void> {
      if (isDisposed) return Promise.reject(new ReleasedError('model'));
      const { sequence, count } = request;
      const isFree = !isBusy && entries.length === 0 && active.size <= 1 && sequence.lost === undefined;
      if (isFree && (whenFull === 'error' || hasRoom(sequence, count))) return runDirectly(request);
      return new Promise((resolve, reject) => {
        entries.push({ request, resolve, reject, isAlone: false, isWaitingForRoom: false });
        wake();
      });
    },
    enter(sequence): () => void {
      active.add(sequence);
      return () => {
        active.delete(sequence);
        wake();
      };
    },
    exclusive,
    wake,
    profile: () => executables.flatMap((executable) => executable.profile()),
    statistics: () => ({
      numSteps,
      numSharedSteps,
      numTokens,
      stepMs,
      tokensPerSecond: stepMs > 0 ? (1000 * numTokens) / stepMs : 0,
      numPreemptions,
      numWaiting: entries.filter((entry) => entry.isWaitingForRoom).length,
    }),
    dispose: () =>
      exclusive(async () => {
        isDisposed = true;
        await Promise.all(executables.map((executable) => executable.dispose()));
      }),
  };
}
