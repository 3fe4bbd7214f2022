/**
 * Continuous batching. Sequences request steps; concurrent requests run as one batch: single tokens of decoding
 * sequences together with prompt chunks. Sequences join and leave between steps. A sequence that is alone skips the
 * queue.
 *
 * A step is atomic for each sequence: its tokens are committed after its outputs were read, or rolled back.
 */
import { maxInvariantTokens, type RecordProfile } from '@winnow/ops';
import { CapacityError, ReleasedError } from '@winnow/tensor';
import type { KvOffloader } from '../kv-offload/offloader.js';
import type { DeviceRecovery } from '../memory/device-recovery.js';
import type { StepMetrics } from '../metrics/model-metrics.js';
import type { StepPhase } from '../plan/attention-plan.js';
import { inOrder, nonEmpty, phaseOf, tokensOf, type Batch, type QueuedRequest, type StepRequest } from './batch.js';
import type { WhenFull } from '../plan/options.js';
import { Chunks } from './chunks.js';
import { gather } from './gather.js';
import type { KvPool } from './kv-pool.js';
import type { ModelRunner } from './model-runner.js';
import { resolveFullPool } from './preemption.js';
import { SequenceRecovery } from './recovery.js';
import type { Sequence, StepPart } from './sequence.js';
import type { StepProgram } from './step-program.js';

export interface SchedulerOptions {
  /** Maximum number of tokens of one request. */
  readonly maxChunk: number;
  readonly whenFull: WhenFull;
  readonly deviceRecovery: DeviceRecovery;
}

export class Scheduler {
  readonly chunks: Chunks;
  /** Maximum number of output rows of one request. */
  readonly maxOutputRows: number;
  /** Whether the model was loaded with a policy that drafts. */
  readonly canDraft: boolean;
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
    this.chunks = new Chunks(maxChunk, runner.maxImageRows);
    this.maxOutputRows = runner.programFor('prefill').maxOutputRows;
    this.#pool = pool;
    this.#runner = runner;
    this.canDraft = runner.canDraft;
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
      this.#queue.push({ request, resolve, reject, runsAlone: false, isWaitingForRoom: false, part: request });
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

  /** Whether a step may decode several tokens of one sequence: see `AttentionPlan.verifiesDrafts`. */
  get verifiesDrafts(): boolean {
    return this.#runner.verifiesDrafts;
  }

  /**
   * Maximum number of tokens that a sequence may decode in one step, so that the tokens of all running sequences still have the bits of
   * steps of their own, and the step has room for a chunk of a prompt.
   */
  get maxDecodeTokens(): number {
    if (!this.#runner.verifiesDrafts) return 1;
    const { maxTokens, maxOutputRows } = this.#runner.programFor('decode');
    const max = Math.min(maxInvariantTokens, maxTokens, maxOutputRows);
    const numOthers = this.#running.size - 1;
    if (numOthers <= 0) return max;
    const numFree = this.#runner.isUniform ? maxTokens - this.chunks.maxTokens : maxTokens - 1;
    return Math.max(1, Math.min(Math.floor(max / (numOthers + 1)), Math.floor(numFree / numOthers)));
  }

  /** Drafts between two steps: see `ModelRunner.draft`. Nothing if the device was lost. @throws {CapacityError} */
  draft(sequence: Sequence, known: readonly number[], count: number): Promise<readonly number[]> {
    const recover = async (error: unknown): Promise<readonly number[]> => {
      if (await this.#recovers(error)) return [];
      throw error;
    };
    return this.exclusive(() => this.#runner.draft(sequence, known, count).catch(recover));
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
    for (let part = sequence.recomputation(this.chunks); part !== undefined;) {
      if (this.#pool.tiers !== undefined) await this.#pool.tiers.makeRoom([part]);
      try {
        sequence.append(tokensOf(part));
        const program = await this.#runner.run([part], 'prefill', undefined);
        sequence.commit(program.hasState, program.massesOf(0, sequence));
      } catch (error) {
        sequence.rollback();
        throw error;
      }
      part = sequence.recomputation(this.chunks);
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
    const { sequence, phase, count, signal, read } = request;
    this.#isBusy = true;
    try {
      signal?.throwIfAborted();
      if (this.#pool.tiers !== undefined) await this.#pool.tiers.makeRoom([request]);
      sequence.append(tokensOf(request));
      const program = await this.#runner.run([request], phase, signal);
      const numKept = (await read?.(program.rows(0))) ?? count;
      this.#numTokens += sequence.commit(program.hasState, program.massesOf(0, sequence), numKept);
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
      await tiers.makeRoom(this.#queue.map(({ request }) => this.#nextPart(request)));
    } catch (error) {
      if (await this.#recovers(error)) return;
      for (const queued of this.#queue) {
        const { count } = this.#nextPart(queued.request);
        const { view } = queued.request.sequence;
        if (!this.#pool.manager.canAppend(view.id, count) || !tiers.isReady(view)) this.#settle(queued, error);
      }
    }
  }

  /** What the next step computes for a request. A preempted sequence is recomputed first, chunk by chunk. */
  #nextPart(request: StepRequest): StepPart {
    return request.sequence.recomputation(this.chunks) ?? request;
  }

  /** The batches that run next: one, or one for each phase. */
  #schedule(): Batch[] {
    for (const queued of this.#queue) {
      const { signal } = queued.request;
      if (signal?.aborted === true) this.#settle(queued, signal.reason);
    }
    const all = this.#candidates();
    const images = all.filter(({ request }) => this.chunks.isImagePart(this.#nextPart(request)));
    for (const queued of images) if (this.#tryAdmit(queued)) return [[queued]];
    const candidates = images.length === 0 ? all : all.filter((queued) => !images.includes(queued));
    if (!this.#runner.separatesPhases || candidates[0]?.runsAlone === true) {
      return nonEmpty([this.#fillBatch('prefill', candidates)]);
    }
    const ofPhase = (phase: StepPhase): QueuedRequest[] => candidates.filter((queued) => phaseOf(queued) === phase);
    return nonEmpty([this.#fillBatch('decode', ofPhase('decode')), this.#fillBatch('prefill', ofPhase('prefill'))]);
  }

  /** The requests that the next step may run: one that runs alone, or all. */
  #candidates(): readonly QueuedRequest[] {
    const alone = this.#queue.find(({ runsAlone }) => runsAlone);
    return alone === undefined ? this.#queue : [alone];
  }

  /** Admits as many candidates as the program of a phase can take, and one prompt at a time where bits must not depend on others. */
  #fillBatch(phase: StepPhase, candidates: readonly QueuedRequest[]): Batch {
    const { maxSequences, maxTokens, maxOutputRows } = this.#runner.programFor(phase);
    const isInvariant = this.#runner.verifiesDrafts;
    const maxBatch = isInvariant && phase === 'prefill' ? 1 : maxSequences;
    const batch: QueuedRequest[] = [];
    let freeTokens = isInvariant && phase === 'decode' ? Math.min(maxTokens, maxInvariantTokens) : maxTokens;
    let freeRows = maxOutputRows;
    for (const queued of inOrder(candidates, maxBatch)) {
      if (batch.length === maxBatch) break;
      const { count, outputRows, sequence } = queued.request;
      const maxPart = sequence.preempted === undefined ? count : this.chunks.maxTokens;
      if (maxPart > freeTokens || outputRows.length > freeRows || !this.#tryAdmit(queued)) continue;
      batch.push(queued);
      freeTokens -= queued.part.count;
      freeRows -= queued.part.outputRows.length;
    }
    return batch;
  }

  /** Admits a request; one that fails is rejected. */
  #tryAdmit(queued: QueuedRequest): boolean {
    try {
      return this.#admit(queued);
    } catch (error) {
      queued.request.sequence.rollback();
      this.#settle(queued, error);
      return false;
    }
  }

  /**
   * Appends the tokens of the next step of a request. Returns false while it must wait for room.
   * @throws {CapacityError}
   */
  #admit(queued: QueuedRequest): boolean {
    const part = this.#nextPart(queued.request);
    if (this.#hasToWait(queued.request, part.count)) {
      this.#startWaiting(queued, part.count);
      return false;
    }
    part.sequence.append(tokensOf(part));
    queued.part = part;
    queued.isWaitingForRoom = false;
    return true;
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

  async #runBatch(batch: Batch): Promise<void> {
    const first = batch[0] as QueuedRequest;
    const phase = phaseOf(first);
    const signal = batch.length === 1 ? first.request.signal : undefined;
    try {
      const parts = batch.map(({ part }) => part);
      const program = await this.#runner.run(parts, phase, signal);
      let firstRow = 0;
      for (const [index, queued] of batch.entries()) {
        await this.#finish(queued, program, index, firstRow);
        firstRow += queued.part.outputRows.length;
      }
    } catch (error) {
      if (!(await this.#recovers(error))) this.#failBatch(batch, error);
    }
  }

  /** Replaces a lost device. Returns false if the error has another cause. */
  async #recovers(error: unknown): Promise<boolean> {
    const lost = this.#recovery.lossOf(error);
    if (lost !== undefined) await this.#recovery.recover(lost).catch(() => undefined); // all callers have been notified by then
    return lost !== undefined;
  }

  /** Rolls a batch back. Requests of several sequences are retried one by one to find the one that failed. */
  #failBatch(batch: Batch, error: unknown): void {
    const canTellApart = batch.length > 1 && !ReleasedError.isInstance(error);
    for (const queued of batch) {
      queued.request.sequence.rollback();
      if (canTellApart) queued.runsAlone = true;
      else this.#settle(queued, error);
    }
  }

  /** Lets a request read its outputs, then commits its tokens. */
  async #finish(queued: QueuedRequest, program: StepProgram, index: number, firstRow: number): Promise<void> {
    const { request, part } = queued;
    const { sequence } = request;
    const isLast = part === request;
    try {
      const numKept = (isLast ? await request.read?.(program.rows(firstRow)) : undefined) ?? part.count;
      this.#numTokens += sequence.commit(program.hasState, program.massesOf(index, sequence), numKept);
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

  /** Whether a candidate that waits fits by now: a session may have freed blocks after the batches were formed. */
  #hasRoomAgain(): boolean {
    return this.#candidates().some(
      ({ request, isWaitingForRoom }) => isWaitingForRoom && !this.#hasToWait(request, this.#nextPart(request).count),
    );
  }

  /**
   * No request can run: preempts a sequence, or rejects a request that can never run. Returns whether something
   * changed.
   */
  #preempt(): boolean {
    if (this.#hasRoomAgain()) return true;
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
    const { id } = sequence.view;
    const { neededBlocks: needed, availableBlocks: available } = this.#pool.roomFor(id, queued.request.count);
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
