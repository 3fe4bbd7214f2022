/** Step requests, and the batches that the scheduler forms from them. */
import type { ReadOutput } from '../memory/step-outputs.js';
import type { StepPhase } from '../plan/attention-plan.js';
import type { StepPart } from './sequence.js';

/** The reader of the outputs of a part of a step, from one of its output rows on. */
export type RowReader = (row: number) => ReadOutput;

/** The tokens that a sequence requests. */
export interface StepRequest extends StepPart {
  readonly phase: StepPhase;
  readonly signal: AbortSignal | undefined;
  /**
   * Reads the outputs before the next step overwrites them, and may return how many of its tokens to keep. The others are rolled
   * back as if they had not been part of the step.
   */
  readonly read: ((rows: RowReader) => Promise<number | void>) | undefined;
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

/** Generated tokens and single ones first, then chunks, for which one slot of the batch is reserved. */
export function inOrder(candidates: readonly QueuedRequest[], maxSequences: number): QueuedRequest[] {
  const isSmall = ({ request }: QueuedRequest): boolean =>
    (request.count === 1 || request.phase === 'decode') && request.sequence.preempted === undefined;
  const small = candidates.filter(isSmall);
  const chunks = candidates.filter((queued) => !isSmall(queued));
  const numSmall = chunks.length > 0 ? Math.max(1, maxSequences - 1) : maxSequences;
  return [...small.slice(0, numSmall), ...chunks];
}
