/** Requests of steps, and the batches that the scheduler forms of them. */
import type { ReadOutput } from '../memory/step-outputs.js';
import type { StepPhase } from '../plan/attention-plan.js';
import type { Sequence } from './sequence.js';
import type { StepPart } from './step-program.js';

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

/** A request in the queue. */
export interface QueuedRequest {
  readonly request: StepRequest;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  /** It failed in a batch with others and runs once more by itself. */
  runsAlone: boolean;
  isWaitingForRoom: boolean;
}

/** Tokens of a request, or of the recomputation before it, that one step computes. */
export interface PartRange {
  readonly tokens: Int32Array;
  readonly offset: number;
  readonly count: number;
  readonly outputRows: readonly number[];
  /** Nothing of the request is left after it. */
  readonly isLast: boolean;
}

export interface ScheduledPart extends StepPart {
  readonly queued: QueuedRequest;
  readonly isLast: boolean;
}

/** The parts of one step, all of one phase unless phases are uniform. */
export type Batch = readonly ScheduledPart[];

/** The phase whose program runs the next part of a request: what a sequence has lost is recomputed by prefill. */
export function phaseOf({ request }: QueuedRequest): StepPhase {
  return request.sequence.preempted === undefined ? request.phase : 'prefill';
}

export function nonEmpty(batches: readonly Batch[]): Batch[] {
  return batches.filter((parts) => parts.length > 0);
}

/** Single tokens first, then chunks, for which one place of the batch is reserved. */
export function inOrder(candidates: readonly QueuedRequest[], maxSequences: number): QueuedRequest[] {
  const isSingle = ({ request }: QueuedRequest): boolean =>
    request.count === 1 && request.sequence.preempted === undefined;
  const singles = candidates.filter(isSingle);
  const chunks = candidates.filter((queued) => !isSingle(queued));
  const numSingles = chunks.length > 0 ? Math.max(1, maxSequences - 1) : maxSequences;
  return [...singles.slice(0, numSingles), ...chunks];
}
