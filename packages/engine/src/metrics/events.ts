/** Events of a loaded model, and the listener that receives them. */

/** An event that a caller may want to observe. */
export type EngineEvent =
  /** A sentence about something that differs from what was requested. */
  | { readonly kind: 'notice'; readonly text: string }
  /** Tokens were evicted from a full context. */
  | { readonly kind: 'evicted'; readonly numTokens: number }
  /** Shared blocks were copied before a write (copy-on-write). */
  | { readonly kind: 'copied'; readonly numBlocks: number; readonly sizeBytes: number }
  /** A sequence waits for free blocks. */
  | { readonly kind: 'waiting'; readonly neededBlocks: number; readonly availableBlocks: number }
  /** A sequence was preempted and freed its blocks. */
  | { readonly kind: 'preempted'; readonly numTokens: number }
  /** The backend's device was lost: it is replaced, and the sequences are recomputed from their tokens. */
  | { readonly kind: 'device-lost'; readonly reason: string }
  /** The oldest tokens of a session moved from the pool to a lower tier. */
  | { readonly kind: 'demoted'; readonly numTokens: number; readonly sizeBytes: number }
  /** Tokens of a session were restored to the pool. */
  | { readonly kind: 'promoted'; readonly numTokens: number; readonly sizeBytes: number }
  /** A page of one layer's keys or values moved from one tier to another. */
  | {
      readonly kind: 'moved';
      readonly from: 'warm' | 'cold';
      readonly to: 'warm' | 'cold';
      readonly sizeBytes: number;
    }
  | { readonly kind: 'saved'; readonly numTokens: number; readonly sizeBytes: number }
  | { readonly kind: 'restored'; readonly numTokens: number; readonly sizeBytes: number };

export type ReportEvent = (event: EngineEvent) => void;

/** Isolates the engine from errors of a listener: they become uncaught errors, as in event targets. */
export function guardedListener(onEvent: ReportEvent | undefined): ReportEvent {
  if (onEvent === undefined) return () => undefined;
  return (event) => {
    try {
      onEvent(event);
    } catch (error) {
      void Promise.reject(error);
    }
  };
}
