/** Events of a loaded model, and the listener that receives them. */

/** Something that a caller may want to know when it happens. */
export type EngineEvent =
  /** Something about a model that was changed to make it work, in words. */
  | { readonly kind: 'notice'; readonly text: string }
  /** Positions left the cache of a sequence whose context was full. */
  | { readonly kind: 'evicted'; readonly numTokens: number }
  /** Shared blocks were copied before they changed. */
  | { readonly kind: 'copied'; readonly numBlocks: number; readonly sizeBytes: number }
  /** A sequence waits for room in the cache. */
  | { readonly kind: 'waiting'; readonly neededBlocks: number; readonly availableBlocks: number }
  /** A sequence gave up its blocks for others. */
  | { readonly kind: 'preempted'; readonly numTokens: number }
  /** The device of the backend was lost: another one takes its place, and the sequences are recomputed from their tokens. */
  | { readonly kind: 'device-lost'; readonly reason: string }
  /** The oldest tokens of a session left the pool for a lower tier. */
  | { readonly kind: 'demoted'; readonly numTokens: number; readonly sizeBytes: number }
  /** Tokens of a session came back to the pool, where there was room again. */
  | { readonly kind: 'promoted'; readonly numTokens: number; readonly sizeBytes: number }
  /** A page, of one layer's keys or values, went on from one tier to another. */
  | {
      readonly kind: 'moved';
      readonly from: 'warm' | 'cold';
      readonly to: 'warm' | 'cold';
      readonly sizeBytes: number;
    }
  | { readonly kind: 'saved'; readonly numTokens: number; readonly sizeBytes: number }
  | { readonly kind: 'restored'; readonly numTokens: number; readonly sizeBytes: number };

export type ReportEvent = (event: EngineEvent) => void;

/** Keeps what a listener throws away from the work that it watches: it becomes an uncaught error, as in event targets. */
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
