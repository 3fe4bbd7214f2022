/** Bounds of what a hub may send and how long it may take, so that no server holds a download forever. */
export interface HubLimits {
  /** Longest time without the headers of an answer, or without a byte of its body. */
  readonly silenceMs: number;
  /** Longest time until an answer in JSON is complete. */
  readonly answerMs: number;
  /** Most bytes of an answer in JSON. */
  readonly answerBytes: number;
}

export const hubLimits: HubLimits = {
  // connections that are merely slow deliver something in far less; those that broke without a word never do
  silenceMs: 30_000,
  // a page of the longest listing takes a slow line a few seconds; this bounds bytes that trickle
  answerMs: 120_000,
  // a page lists a thousand files in 0.5 MB, and the description of a repository has at most a few MB
  answerBytes: 32 * 1024 * 1024,
};
