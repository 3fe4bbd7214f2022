/** The program's interface to its host, implemented in `main.ts` and by tests. */
import type { Readable, Writable } from 'node:stream';
import type * as engine from '@winnow/engine';
import type { ModelLocation } from '@winnow/engine';
import type * as hub from '@winnow/hub/node';
import type { ServerOptions, WinnowServer } from '@winnow/server';
import type { RouterOptions, WinnowRouter } from '@winnow/server/router';
import type { Peaks } from './profile-table.js';

/** The parts of `@winnow/engine` that the commands use. */
export type EngineApi = Pick<
  typeof engine,
  | 'loadModel'
  | 'loadEmbeddingModel'
  | 'loadReranker'
  | 'inspectModel'
  | 'openTokenizer'
  | 'weightsHash'
  | 'openPromptStore'
>;

/** The parts of `@winnow/server` that the commands use. */
export interface ServerApi {
  createServer(options: ServerOptions): Promise<Omit<WinnowServer, 'call'>>;
}

/** The part of `@winnow/server` without models. */
export interface RouterApi {
  createRouter(options: RouterOptions): Promise<WinnowRouter>;
}

/** The parts of `@winnow/hub` that look after downloaded models. */
export type HubCacheApi = Pick<typeof hub, 'listCachedRepos' | 'removeCachedRepo'>;

/** A model in a repository. */
export interface HubRequest {
  /** `owner/name` */
  readonly repo: string;
  readonly revision: string | undefined;
  /** A GGUF file of the repository; without it the whole model folder. */
  readonly file: string | undefined;
}

export interface DownloadOptions {
  readonly signal: AbortSignal;
  /** Whether the image encoder of a GGUF model is downloaded as well. */
  readonly mmproj: boolean;
  readonly onProgress: (progress: {
    readonly file: string;
    readonly loadedBytes: number;
    readonly totalBytes: number;
  }) => void;
}

/** Downloads a model from the hub (or finds it in the cache) and returns its path. */
export type Download = (request: HubRequest, options: DownloadOptions) => Promise<ModelLocation>;

export type InputStream = Readable & { readonly isTTY?: boolean };
export type OutputStream = Writable & { readonly isTTY?: boolean; readonly columns?: number };

export interface CliIo {
  readonly stdin: InputStream;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Loads the engine lazily: `--help` does not need it. */
  readonly engine: () => Promise<EngineApi>;
  /** The same for `winnow serve`. */
  readonly server: () => Promise<ServerApi>;
  /** The same for `winnow route`. */
  readonly router: () => Promise<RouterApi>;
  readonly download: Download;
  /** Loads the hub lazily. */
  readonly hubCache: () => Promise<HubCacheApi>;
  /** Calls the listener at every Ctrl-C until the returned function is called. */
  readonly onInterrupt: (listener: () => void) => () => void;
  /** The same for SIGTERM; the listener must exit the process. */
  readonly onTerminate: (listener: () => void) => () => void;
  /** Calls the listener when the process exits for any reason but SIGKILL; it cannot wait. */
  readonly onExit: (listener: () => void) => () => void;
  /** Exits immediately, for a second Ctrl-C while the first is still being handled. */
  readonly exitNow: (code: number) => void;
  readonly randomSeed: () => number;
  /** Measures peak memory bandwidth and compute of WebAssembly with a number of threads (default: all). */
  readonly measurePeaks: (numThreads: number | undefined) => Promise<Peaks>;
  readonly version: string;
}
