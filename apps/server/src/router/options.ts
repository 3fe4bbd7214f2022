/** What a router needs to know. */
import { ArgumentError, type OptionNames } from '@winnow/tensor';
import type { RequestRecord } from '../options.js';

export type UpstreamState = 'up' | 'draining' | 'down';

/** A server became available, closes, or can no longer be reached. */
export interface UpstreamEvent {
  readonly upstream: string;
  readonly state: UpstreamState;
  /** Why it is down. */
  readonly reason?: string;
}

export interface RouterOptions {
  /** Base URLs such as `http://10.0.0.5:8080` of `winnow serve`, or of others with OpenAI's API, `/health` and `/v1/models`. */
  readonly upstreams: readonly string[];
  /** Base URL of the server for `/v1/files` and `/v1/batches`. Default: the router has none. */
  readonly batchUpstream?: string;
  /** API key for `/metrics` and `/v1/models` of the servers, which the router reads itself. Default: none. */
  readonly upstreamApiKey?: string;
  /** API keys that the router accepts; it passes them on, and the servers check them, too. Default: all are passed on. */
  readonly apiKeys?: readonly string[];
  /** Whether prompts with different API keys count as sharing prefixes, as with `sharePrefixes` of the servers. Default: false. */
  readonly sharePrefixes?: boolean;
  /**
   * c of the bounded load: of m requests on n servers, no server gets one by its hash above ⌈c (m + 1) / n⌉. At least 1.
   * Default 1.25.
   */
  readonly loadFactor?: number;
  /** Interval of health checks in milliseconds. Default 2000. */
  readonly checkIntervalMs?: number;
  /** Maximum size of a request body in bytes, except for uploaded files. Default 4 MiB. */
  readonly maxBodyBytes?: number;
  /** Maximum number of connections of clients. Default 4096. */
  readonly maxConnections?: number;
  /** Maximum total time of a request in milliseconds. Default 900 000. */
  readonly requestTimeoutMs?: number;
  /** Maximum time in milliseconds that a client may stall its stream before it is disconnected. Default 60 000. */
  readonly stallTimeoutMs?: number;
  /** Idle time in milliseconds after which a stream gets a keep-alive comment. Default 15 000. */
  readonly keepAliveMs?: number;
  /** Called after every request. */
  readonly onRequest?: (record: RequestRecord) => void;
  /** Called when the state of a server changes. */
  readonly onUpstream?: (event: UpstreamEvent) => void;
  /** Called for internal errors. */
  readonly onError?: (error: unknown) => void;
}

export const routerOptionNames: OptionNames<RouterOptions> = {
  upstreams: true,
  batchUpstream: true,
  upstreamApiKey: true,
  apiKeys: true,
  sharePrefixes: true,
  loadFactor: true,
  checkIntervalMs: true,
  maxBodyBytes: true,
  maxConnections: true,
  requestTimeoutMs: true,
  stallTimeoutMs: true,
  keepAliveMs: true,
  onRequest: true,
  onUpstream: true,
  onError: true,
};

export interface RouterLimits {
  readonly checkIntervalMs: number;
  readonly maxBodyBytes: number;
  readonly maxConnections: number;
  readonly requestTimeoutMs: number;
  readonly stallTimeoutMs: number;
  readonly keepAliveMs: number;
}

const defaultLimits: RouterLimits = {
  checkIntervalMs: 2000,
  maxBodyBytes: 4 * 2 ** 20,
  maxConnections: 4096,
  requestTimeoutMs: 900_000,
  stallTimeoutMs: 60_000,
  keepAliveMs: 15_000,
};

/** @throws {ArgumentError} for a limit that is not a positive integer */
export function limitsOf(options: RouterOptions): RouterLimits {
  const limits: Record<keyof RouterLimits, number> = { ...defaultLimits };
  for (const name of Object.keys(limits) as (keyof RouterLimits)[]) {
    const value = options[name] ?? limits[name];
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new ArgumentError({ argument: name, expected: 'an integer from 1', actual: String(value) });
    }
    limits[name] = value;
  }
  return limits;
}

/** @throws {ArgumentError} for a text that is not the address of a server */
export function upstreamUrl(argument: string, text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isBare =
    url?.username === '' && url.password === '' && url.search === '' && url.hash === '' && /^\/?$/.test(url.pathname);
  if (url !== undefined && isBare && /^https?:$/.test(url.protocol)) return url;
  const expected = 'a URL such as http://10.0.0.5:8080, without path and password';
  // also of one that cannot be parsed, such as for a '#' in the password
  const actual = text.includes('@') ? 'one with a password' : `'${text}'`;
  throw new ArgumentError({ argument, expected, actual });
}
