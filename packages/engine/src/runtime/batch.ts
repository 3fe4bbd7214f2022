/** Step requests, and the batches that the scheduler forms from them. */
import type { ReadOutput } from '../memory/step-outputs.js';
import type { StepPhase } from '../plan/attention-plan.js';
import type { Sequence } from './sequence.js';
import type { StepPart } from './step-program.js';

/** The tokens that a sequence requests: `tokens[offset, offset + count)`, at most a chunk. */
export interface StepRequest {
  readonly sequence: Sequence;
  readonly phase: StepPhase;
  readonly tokens: Int32Array;
  readonly offset: number;
  readonly count: number;
  /** Which of the tokens need logits, relative to `offset`. */
  readonly outputRows: readonly number[];
  readonly signal: AbortSignal | undefined;
  /** Reads the outputs before the next step overwrites them. */
  readonly read: ((output: ReadOutput) => Promise<void>) | undefined;
}

/** A request in the queue. */
export interface QueuedRequest {
  readonly request: StepRequest;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  /** Whether it failed in a batch with others and is retried alone. */
  runsAlone: boolean;
  isWaitingForRoom: boolean;
}

/** Tokens of a request, or of the recomputation before it, that one step computes. */
export interface PartRange {
  readonly tokens: Int32Array;
  readonly offset: number;
  readonly count: number;
  readonly outputRows: readonly number[];
  /** Whether this is the last part of the request. */
  readonly isLast: boolean;
}

export interface ScheduledPart extends StepPart {
  readonly queued: QueuedRequest;
  readonly isLast: boolean;
}

/** The parts of one step, all of one phase unless phases are uniform. */
export type Batch = readonly ScheduledPart[];

/** The phase whose program runs the next part of a request: lost tokens are recomputed by prefill. */
export function phaseOf({ request }: QueuedRequest): StepPhase {
  return request.sequence.preempted === undefined ? request.phase : 'prefill';
}

export function nonEmpty(batches: readonly Batch[]): Batch[] {
  return batches.filter((parts) => parts.length > 0);
}

/** Single tokens first, then chunks, for which one slot of the batch is reserved. */
export function inOrder(candidates: readonly QueuedRequest[], maxSequences: number): QueuedRequest[] {
  const isSingle = ({ request }: QueuedRequest): boolean =>
    request.count === 1 && request.sequence.preempted === undefined;
  const singles = candidates.filter(isSingle);
  const chunks = candidates.filter((queued) => !isSingle(queued));
  const numSingles = chunks.length > 0 ? Math.max(1, maxSequences - 1) : maxSequences;
  return [...singles.slice(0, numSingles), ...chunks];
}
