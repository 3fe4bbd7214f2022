/** What the program needs from its host. The real one is in `main.ts`, tests pass their own. */
import type { Readable, Writable } from 'node:stream';
import type {
  EmbeddingLoadOptions,
  EmbeddingModel,
  LoadOptions,
  Model,
  ModelInfo,
  ModelLocation,
  ModelTokenizer,
  OpenOptions,
} from '@winnow/engine';
import type { ServerOptions, WinnowServer } from '@winnow/server';
import type { Peaks } from './profile-table.js';

/** The parts of `@winnow/engine` that the commands use. */
export interface EngineApi {
  loadModel(location: ModelLocation, options?: LoadOptions): Promise<Model>;
  loadEmbeddingModel(location: ModelLocation, options?: EmbeddingLoadOptions): Promise<EmbeddingModel>;
  inspectModel(location: ModelLocation, options?: LoadOptions): Promise<ModelInfo>;
  openTokenizer(location: ModelLocation, options?: OpenOptions): Promise<ModelTokenizer>;
}

/** The parts of `@winnow/server` that the commands use. */
export interface ServerApi {
  createServer(options: ServerOptions): Promise<WinnowServer>;
}

/** A model by its name in a repository. */
export interface HubRequest {
  /** `owner/name` */
  readonly repo: string;
  readonly revision: string | undefined;
  /** One file of the repository, a GGUF; without it the whole model folder. */
  readonly file: string | undefined;
}

export interface DownloadOptions {
  readonly signal: AbortSignal;
  readonly onProgress: (progress: {
    readonly file: string;
    readonly loadedBytes: number;
    readonly totalBytes: number;
  }) => void;
}

/** Brings a model from the hub (or its cache) and says where it lies now. */
export type Download = (request: HubRequest, options: DownloadOptions) => Promise<ModelLocation>;

export type InputStream = Readable & { readonly isTTY?: boolean };
export type OutputStream = Writable & { readonly isTTY?: boolean; readonly columns?: number };

export interface CliIo {
  readonly stdin: InputStream;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Called when a command first needs it: `--help` loads no engine. */
  readonly engine: () => Promise<EngineApi>;
  /** The same for `winnow serve`. */
  readonly server: () => Promise<ServerApi>;
  readonly download: Download;
  /** Calls the listener at every Ctrl-C until the returned function is called. */
  readonly onInterrupt: (listener: () => void) => () => void;
  /** The same for the wish of the system that the process ends; who listens ends it. */
  readonly onTerminate: (listener: () => void) => () => void;
  /** Ends the process at once, for a second Ctrl-C while the first is still being served. */
  readonly exitNow: (code: number) => void;
  readonly randomSeed: () => number;
  /** How fast the machine reads memory and computes from WebAssembly, with so many threads (default: all). */
  readonly measurePeaks: (numThreads: number | undefined) => Promise<Peaks>;
  readonly version: string;
}
