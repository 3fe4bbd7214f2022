/** Step requests, and the batches that the scheduler forms from them. */
import type { ReadOutput } from '../memory/step-outputs.js';
import type { StepPhase } from '../plan/attention-plan.js';
import type { StepPart } from './sequence.js';

/** The tokens that a sequence requests. */
export interface StepRequest extends StepPart {
  readonly phase: StepPhase;
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
  /** What the step that it was admitted to computes: the request, or tokens that must be recomputed before it. */
  part: StepPart;
}

/** The requests of one step, all of one phase unless phases are uniform. */
export type Batch = readonly QueuedRequest[];

/** The tokens of a part. */
export function tokensOf({ tokens, offset, count }: StepPart): Int32Array {
  return count === tokens.length ? tokens : tokens.subarray(offset, offset + count);
}

/** The phase whose program runs the next part of a request: lost tokens are recomputed by prefill. */
export function phaseOf({ request }: QueuedRequest): StepPhase {
  return request.sequence.preempted === undefined ? request.phase : 'prefill';
}

export function nonEmpty(batches: readonly Batch[]): Batch[] {
  return batches.filter((batch) => batch.length > 0);
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
