/** Errors of downloading a repository. */
import { IoError } from '@winnow/tensor';

/** Causes of failures. */
export type HubErrorReason =
  /** No such repository, revision or file. The hub also reports this for private ones. */
  | 'not-found'
  /** The hub requires an access token, or the token is wrong. */
  | 'unauthorized'
  /** The repository is gated: access must be requested from its owner. */
  | 'gated'
  /** Offline, and the cache is missing files, which `files` lists. */
  | 'not-cached'
  /** The hub returned an error or a malformed response (rate limit, server error). */
  | 'server'
  /** The hub could not be reached, or the connection was lost more often than the retry limit. */
  | 'network'
  /** The downloaded content does not match the announced size or hash. */
  | 'corrupt'
  /** The cache cannot be read or written: full, read-only, not a folder. */
  | 'disk';

/** A download failed. */
export class HubError extends IoError {
  override readonly name: string = 'HubError';
  readonly reason: HubErrorReason;
  /** HTTP status, if the hub responded. */
  readonly statusCode: number | undefined;
  /** The affected files, if known. */
  readonly files: readonly string[];

  constructor(
    fields: { source: string; reason: HubErrorReason; message: string; statusCode?: number; files?: readonly string[] },
    options?: { cause?: unknown },
  ) {
    super({ source: fields.source, message: fields.message }, options);
    this.reason = fields.reason;
    this.statusCode = fields.statusCode;
    this.files = fields.files ?? [];
  }
}
