/** Bounds of what a hub may send and how long it may take, so that no server holds a download forever. */
export interface HubLimits {
  /** Maximum time to wait for the headers of a response, or for the next bytes of its body. */
  readonly silenceMs: number;
  /** Maximum time for a complete JSON response. */
  readonly answerMs: number;
  /** Maximum size of a JSON response in bytes. */
  readonly answerBytes: number;
}

export const hubLimits: HubLimits = {
  // a slow connection delivers some bytes in far less time; a broken one never does
  silenceMs: 30_000,
  // a page of the longest listing takes a few seconds on a slow connection; this limits bodies that trickle in
  answerMs: 120_000,
  // a page lists a thousand files in 0.5 MB, and the description of a repository has at most a few MB
  answerBytes: 32 * 1024 * 1024,
};
