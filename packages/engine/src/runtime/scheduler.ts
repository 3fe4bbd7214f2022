/**
 * Continuous batching. Sequences request steps; concurrent requests run as one batch: single tokens of decoding
 * sequences together with prompt chunks. Sequences join and leave between steps. A sequence that is alone skips the
 * queue.
 *
 * A step is atomic for each sequence: its tokens are committed after its outputs were read, or rolled back.
 */
import type { RecordProfile } from '@winnow/ops';
import { CapacityError, ReleasedError } from '@winnow/tensor';
import type { KvOffloader, RoomRequest } from '../kv-offload/offloader.js';
import type { DeviceRecovery } from '../memory/device-recovery.js';
import type { StepMetrics } from '../metrics/model-metrics.js';
import type { StepPhase } from '../plan/attention-plan.js';
import {
  inOrder,
  nonEmpty,
  phaseOf,
  type Batch,
  type PartRange,
  type QueuedRequest,
  type ScheduledPart,
  type StepRequest,
} from './batch.js';
import type { WhenFull } from '../plan/options.js';
import { gather } from './gather.js';
import type { KvPool } from './kv-pool.js';
import type { ModelRunner } from './model-runner.js';
import { resolveFullPool } from './preemption.js';
import { SequenceRecovery } from './recovery.js';
import type { Sequence } from './sequence.js';
import type { StepProgram } from './step-program.js';

export interface SchedulerOptions {
  /** Maximum number of tokens of one request. */
  readonly maxChunk: number;
  readonly whenFull: WhenFull;
  readonly deviceRecovery: DeviceRecovery;
}

export class Scheduler {
  /** Maximum number of tokens, and of output rows, of one request. */
  readonly maxChunk: number;
  readonly maxOutputRows: number;
  readonly #pool: KvPool;
  readonly #runner: ModelRunner;
  readonly #whenFull: WhenFull;
  readonly #recovery: SequenceRecovery;
  /** Generations in progress, oldest first. */
  readonly #running = new Set<Sequence>();
  readonly #tasks: (() => Promise<void>)[] = [];
  #queue: QueuedRequest[] = [];
  #isBusy = false;
  #isDisposed = false;
  #numTokens = 0;
  #numPreemptions = 0;
  readonly #wake = (): void => this.wake();

  constructor(pool: KvPool, runner: ModelRunner, { maxChunk, whenFull, deviceRecovery }: SchedulerOptions) {
    this.maxChunk = maxChunk;
    this.maxOutputRows = runner.programFor('prefill').maxOutputRows;
    this.#pool = pool;
    this.#runner = runner;
    this.#whenFull = whenFull;
    this.#recovery = new SequenceRecovery(pool, deviceRecovery, (errorOf) => {
      for (const queued of this.#queue) {
        const error = errorOf(queued.request.sequence);
        if (error !== undefined) this.#settle(queued, error);
      }
    });
    pool.onFreed = this.#wake;
  }

  /**
   * Runs the request in one of the next steps.
   * @throws {CapacityError} when the cache is full and the policy is `error`
   */
  run(request: StepRequest): Promise<void> {
    if (this.#isDisposed) return Promise.reject(new ReleasedError('model'));
    return this.#canRunDirectly(request) ? this.#runDirectly(request) : this.#enqueue(request);
  }

  #enqueue(request: StepRequest): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ request, resolve, reject, runsAlone: false, isWaitingForRoom: false });
      this.wake();
    });
  }

  /** A generation begins: batches wait briefly for its requests. */
  enter(sequence: Sequence): void {
    this.#running.add(sequence);
  }

  /** The generation has ended. */
  leave(sequence: Sequence): void {
    this.#running.delete(sequence);
    this.wake();
  }

  /** Runs a task between two steps. */
  exclusive<T>(task: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#tasks.push(() => task().then(resolve, reject));
      this.wake();
    });
  }

  /** Within an exclusive task: recomputes a preempted sequence. */
  async recompute(sequence: Sequence): Promise<void> {
    while (sequence.preempted !== undefined) {
      const tokens = sequence.preempted;
      const offset = sequence.view.numTokens;
      const count = sequence.countRecomputed(this.maxChunk);
      if (this.#pool.tiers !== undefined) await this.#pool.tiers.makeRoom([{ view: sequence.view, numTokens: count }]);
      try {
        const appended = sequence.append(tokens.subarray(offset, offset + count));
        const part = { sequence, tokens, offset, appended, outputRows: [] };
        const program = await this.#runner.run([part], 'prefill', undefined);
        sequence.commit(program.hasState, program.massesOf(0, sequence));
      } catch (error) {
        sequence.rollback();
        throw error;
      }
    }
  }

  /** Starts the loop unless it runs: there is a request or a task, or blocks may have become free. */
  wake(): void {
    if (!this.#isBusy && (this.#queue.length > 0 || this.#tasks.length > 0)) void this.#loop();
  }

  profile(): RecordProfile[] {
    return this.#runner.profile();
  }

  statistics(): StepMetrics {
    const { numSteps, numSharedSteps, stepMs } = this.#runner.statistics();
    return {
      numSteps,
      numSharedSteps,
      numTokens: this.#numTokens,
      stepMs,
      tokensPerSecond: stepMs > 0 ? (1000 * this.#numTokens) / stepMs : 0,
      numPreemptions: this.#numPreemptions,
      numDeviceLosses: this.#recovery.numLosses,
      numWaiting: this.#queue.filter(({ isWaitingForRoom }) => isWaitingForRoom).length,
    };
  }

  /** Ends after the step in progress and rejects queued requests. The programs can then be disposed of. */
  dispose(): Promise<void> {
    return this.exclusive(async () => {
      this.#isDisposed = true;
    });
  }

  #canRunDirectly({ sequence, count }: StepRequest): boolean {
    if (this.#isBusy || this.#queue.length > 0 || this.#running.size > 1) return false;
    if (sequence.preempted !== undefined) return false;
    return this.#whenFull === 'error' || this.#pool.hasRoomFor(sequence.view.id, count);
  }

  /** The fast path for a sequence that has the model to itself. */
  async #runDirectly(request: StepRequest): Promise<void> {
    const { sequence, phase, tokens, offset, count, outputRows, signal, read } = request;
    this.#isBusy = true;
    try {
      signal?.throwIfAborted();
      if (this.#pool.tiers !== undefined) await this.#pool.tiers.makeRoom([{ view: sequence.view, numTokens: count }]);
      const wanted = count === tokens.length ? tokens : tokens.subarray(offset, offset + count);
      const appended = sequence.append(wanted);
      const program = await this.#runner.run([{ sequence, tokens, offset, appended, outputRows }], phase, signal);
      if (read !== undefined) await read(program.reader(0));
      sequence.commit(program.hasState, program.massesOf(0, sequence));
      this.#numTokens += count;
      this.#recovery.noteAnswer();
    } catch (error) {
      sequence.rollback();
      const lost = this.#recovery.lossOf(error);
      if (lost === undefined) throw error;
      const failure = (await this.#recovery.recover(lost)).get(sequence);
      if (failure !== undefined) throw failure;
      return this.#enqueue(request);
    } finally {
      this.#isBusy = false;
      this.wake();
    }
  }

  /** Runs tasks and batches until nothing is left to do, or no request can make progress. */
  async #loop(): Promise<void> {
    this.#isBusy = true;
    try {
      for (;;) {
        const task = this.#tasks.shift();
        if (task !== undefined) {
          await task();
          continue;
        }
        if (this.#isDisposed) for (const queued of this.#queue) this.#settle(queued, new ReleasedError('model'));
        if (this.#queue.length === 0) break;
        await gather(() => this.#tasks.length > 0 || this.#numReady() >= this.#running.size);
        const hasRun = await this.#step();
        // nothing may be awaited between this decision and the end of the loop, or a new request would wait for a loop
        // that has ended
        if (!hasRun && this.#tasks.length === 0 && this.#queue.length > 0 && !this.#preempt()) break;
      }
    } finally {
      this.#isBusy = false;
    }
  }

  /** Runs the next batches. Returns whether there were any. */
  async #step(): Promise<boolean> {
    if (this.#pool.tiers !== undefined) await this.#offload(this.#pool.tiers);
    const batches = this.#schedule();
    const { numLosses } = this.#recovery;
    for (const batch of batches) {
      if (numLosses === this.#recovery.numLosses) await this.#runBatch(batch);
    }
    return batches.length > 0;
  }

  /** Running generations that have requested their next step. */
  #numReady(): number {
    let count = 0;
    for (const { request } of this.#queue) if (this.#running.has(request.sequence)) count++;
    return count;
  }

  /** Offloads blocks to make room. Requests that still do not fit are rejected with the error that caused it. */
  async #offload(tiers: KvOffloader): Promise<void> {
    try {
      await tiers.makeRoom(this.#queue.map(({ request }) => this.#roomRequest(request)));
    } catch (error) {
      if (await this.#recovers(error)) return;
      for (const queued of this.#queue) {
        const { view, numTokens } = this.#roomRequest(queued.request);
        if (!this.#pool.manager.canAppend(view.id, numTokens) || !tiers.isReady(view)) this.#settle(queued, error);
      }
    }
  }

  #roomRequest(request: StepRequest): RoomRequest {
    return { view: request.sequence.view, numTokens: this.#nextPart(request).count };
  }

  /** What the next step computes for a request. A preempted sequence is recomputed first, chunk by chunk. */
  #nextPart({ sequence, tokens, offset, count, outputRows }: StepRequest): PartRange {
    const { preempted, view } = sequence;
    if (preempted === undefined) return { tokens, offset, count, outputRows, isLast: true };
    const chunk = sequence.countRecomputed(this.maxChunk);
    return { tokens: preempted, offset: view.numTokens, count: chunk, outputRows: [], isLast: false };
  }

  /** The batches that run next: one, or one for each phase. */
  #schedule(): Batch[] {
    for (const queued of this.#queue) {
      const { signal } = queued.request;
      if (signal?.aborted === true) this.#settle(queued, signal.reason);
    }
    const alone = this.#queue.find(({ runsAlone }) => runsAlone);
    if (alone !== undefined) return nonEmpty([this.#fillBatch('prefill', [alone])]);
    if (this.#runner.isUniform) return nonEmpty([this.#fillBatch('prefill', this.#queue)]);
    const ofPhase = (phase: StepPhase): QueuedRequest[] => this.#queue.filter((queued) => phaseOf(queued) === phase);
    return nonEmpty([this.#fillBatch('decode', ofPhase('decode')), this.#fillBatch('prefill', ofPhase('prefill'))]);
  }

  /** Admits as many candidates as the program of a phase can take; the others stay for the next step. */
  #fillBatch(phase: StepPhase, candidates: readonly QueuedRequest[]): Batch {
    const { maxSequences, maxTokens, maxOutputRows } = this.#runner.programFor(phase);
    const parts: ScheduledPart[] = [];
    let freeTokens = maxTokens;
    let freeRows = maxOutputRows;
    for (const queued of inOrder(candidates, maxSequences)) {
      if (parts.length === maxSequences) break;
      const { count, outputRows, sequence } = queued.request;
      const maxPart = sequence.preempted === undefined ? count : this.maxChunk;
      if (maxPart > freeTokens || outputRows.length > freeRows) continue;
      const part = this.#tryAdmit(queued);
      if (part === undefined) continue;
      parts.push(part);
      freeTokens -= part.appended.slots.length;
      freeRows -= part.outputRows.length;
    }
    return parts;
  }

  /** Admits a request; one that fails is rejected. */
  #tryAdmit(queued: QueuedRequest): ScheduledPart | undefined {
    try {
      return this.#admit(queued);
    } catch (error) {
      queued.request.sequence.rollback();
      this.#settle(queued, error);
      return undefined;
    }
  }

  /**
   * Appends the tokens of the next step of a request; `undefined` while it must wait for room.
   * @throws {CapacityError}
   */
  #admit(queued: QueuedRequest): ScheduledPart | undefined {
    const { sequence } = queued.request;
    const { tokens, offset, count, outputRows, isLast } = this.#nextPart(queued.request);
    if (this.#hasToWait(queued.request, count)) {
      this.#startWaiting(queued, count);
      return undefined;
    }
    const appended = sequence.append(tokens.subarray(offset, offset + count));
    queued.isWaitingForRoom = false;
    return { queued, sequence, tokens, offset, appended, outputRows, isLast };
  }

  #hasToWait({ sequence, count }: StepRequest, numTokens: number): boolean {
    if (this.#whenFull !== 'wait') return false;
    const { id, numTokens: numCached } = sequence.view;
    if (!this.#pool.hasRoomFor(id, numTokens)) return true;
    // a preempted sequence resumes when all of it fits, in the pool or in the tiers below
    const comesBack = sequence.preempted !== undefined && numCached === 0 && this.#pool.tiers === undefined;
    return (
      comesBack && !this.#pool.hasRoomFor(id, sequence.evictions.maxHeld((sequence.preempted?.length ?? 0) + count))
    );
  }

  #startWaiting(queued: QueuedRequest, numTokens: number): void {
    if (!queued.isWaitingForRoom) {
      const { signal, sequence } = queued.request;
      signal?.addEventListener('abort', this.#wake);
      this.#pool.report({ kind: 'waiting', ...this.#pool.roomFor(sequence.view.id, numTokens) });
    }
    queued.isWaitingForRoom = true;
  }

  async #runBatch(parts: Batch): Promise<void> {
    const { queued: first } = parts[0] as ScheduledPart;
    const phase = phaseOf(first);
    const { signal } = first.request;
    try {
      const program = await this.#runner.run(parts, phase, parts.length === 1 ? signal : undefined);
      let firstRow = 0;
      for (const [index, part] of parts.entries()) {
        await this.#finish(part, program, index, firstRow);
        firstRow += part.outputRows.length;
      }
    } catch (error) {
      if (!(await this.#recovers(error))) this.#failBatch(parts, error);
    }
  }

  /** Replaces a lost device. Returns false if the error has another cause. */
  async #recovers(error: unknown): Promise<boolean> {
    const lost = this.#recovery.lossOf(error);
    if (lost !== undefined) await this.#recovery.recover(lost).catch(() => undefined); // all callers have been notified by then
    return lost !== undefined;
  }

  /** Rolls a batch back. Requests of several sequences are retried one by one to find the one that failed. */
  #failBatch(parts: Batch, error: unknown): void {
    const canTellApart = parts.length > 1 && !ReleasedError.isInstance(error);
    for (const { queued, sequence } of parts) {
      sequence.rollback();
      if (canTellApart) queued.runsAlone = true;
      else this.#settle(queued, error);
    }
  }

  /** Lets a request read its outputs, then commits its tokens. */
  async #finish(part: ScheduledPart, program: StepProgram, index: number, firstRow: number): Promise<void> {
    const { queued, sequence, appended, isLast } = part;
    try {
      if (isLast) await queued.request.read?.(program.reader(firstRow));
      sequence.commit(program.hasState, program.massesOf(index, sequence));
      this.#numTokens += appended.slots.length;
      queued.runsAlone = false;
      if (isLast) {
        this.#recovery.noteAnswer();
        this.#settle(queued);
      }
    } catch (error) {
      sequence.rollback();
      if (this.#recovery.lossOf(error) !== undefined) throw error;
      this.#settle(queued, error);
    }
  }

  /**
   * No request can run: preempts a sequence, or rejects a request that can never run. Returns whether something
   * changed.
   */
  #preempt(): boolean {
    const waiting = new Set(this.#queue.map(({ request }) => request.sequence));
    const choice = resolveFullPool(this.#pool.manager, this.#running, waiting, this.#runner.isUniform);
    if (choice === undefined) return false;
    const { kind, sequence } = choice;
    if (kind === 'preempt') {
      this.#pool.report({ kind: 'preempted', numTokens: sequence.view.numTokens });
      sequence.preempt();
      this.#numPreemptions++;
      return true;
    }
    const queued = this.#queue.find(({ request }) => request.sequence === sequence) as QueuedRequest;
    const { neededBlocks: needed, availableBlocks: available } = this.#pool.roomFor(
      sequence.view.id,
      queued.request.count,
    );
    const hint = 'no other session will free its blocks';
    this.#settle(queued, new CapacityError({ resource: 'kv cache', needed, available, unit: 'blocks', hint }));
    return true;
  }

  /** Removes a request from the queue and settles its promise. */
  #settle(queued: QueuedRequest, error?: unknown): void {
    this.#queue = this.#queue.filter((other) => other !== queued);
    queued.request.signal?.removeEventListener('abort', this.#wake);
    if (error === undefined) queued.resolve();
    else queued.reject(error);
  }
}
