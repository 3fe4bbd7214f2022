/**
 * A clock that advances 10 microseconds each time it is read: drafts and their verification take as long as single tokens, so that
 * drafts are made and long however busy the machine is.
 */
export function fastClock(): () => number {
  let ms = 0;
  return () => (ms += 0.01);
}
