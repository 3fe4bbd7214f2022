/**
 * A clock that advances 10 microseconds each time it is read: verifying a draft takes as long as a single token, so that long drafts
 * are made however busy the machine is.
 */
export function fastClock(): () => number {
  let ms = 0;
  return () => (ms += 0.01);
}
