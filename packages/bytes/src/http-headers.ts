/** Parses the HTTP headers of contents that are read by ranges (RFC 9110). */

/** The parts of `Content-Range: bytes 0-9/100`, where a part may be `*`; `undefined` when absent or malformed. */
export function contentRangeOf(
  headers: Headers,
): { first: number | undefined; last: number | undefined; sizeBytes: number | undefined } | undefined {
  const match = /^bytes (?:(\d{1,15})-(\d{1,15})|\*)\/(\d{1,15}|\*)$/i.exec(headers.get('content-range')?.trim() ?? '');
  if (match === null) return undefined;
  const [, first, last, size] = match;
  return {
    first: first === undefined ? undefined : Number(first),
    last: last === undefined ? undefined : Number(last),
    sizeBytes: size === undefined || size === '*' ? undefined : Number(size),
  };
}

/** Identifies the version of the file: its ETag (weak or strong), else its date. */
export function validatorOf(headers: Headers): string | undefined {
  return headers.get('etag')?.replace(/^W\//, '') ?? headers.get('last-modified') ?? undefined;
}

/** Whether a response is a page of HTML by its type. */
export function isHtml(headers: Headers): boolean {
  return /^\s*(text\/html|application\/xhtml\+xml)\b/i.test(headers.get('content-type') ?? '');
}

/** Whether bytes start a page of HTML, whatever the type of the response. */
export function startsPage(bytes: Uint8Array): boolean {
  return /^\uFEFF?\s*<(!doctype\s|html[\s>])/i.test(new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes));
}

/** Transient statuses: timeouts, too many requests, failures of servers and gateways. */
export function isTransient(status: number): boolean {
  return [408, 425, 429, 500, 502, 503, 504].includes(status);
}

/** Longest `Retry-After` that is respected: no reader waits for longer ones. */
const maxRetryAfterMs = 30_000;

/** `Retry-After` in seconds as milliseconds, at most 30 s; 0 when absent or a date. */
export function retryAfterMs(headers: Headers): number {
  const seconds = Number(headers.get('retry-after') ?? 0);
  return Number.isFinite(seconds) && seconds > 0 ? Math.min(seconds * 1000, maxRetryAfterMs) : 0;
}
