/** In the page or a worker: KV offload and saved sessions in the origin private file system. */
import { memorySink, memorySource } from '@winnow/bytes';
import { loadModel, type KvCacheOptions, type Model, type Session, type TierMetrics } from '@winnow/engine';

export interface LoadInput {
  readonly url: string;
  readonly kvCache?: KvCacheOptions;
}

interface Folder {
  getDirectoryHandle(name: string): Promise<Folder>;
  keys(): AsyncIterable<string>;
}

interface WorkerLike {
  onmessage: ((event: { readonly data: { readonly value?: unknown; readonly error?: string } }) => void) | null;
  onerror: ((event: { readonly message: string }) => void) | null;
  postMessage(message: unknown): void;
}
interface Scope {
  readonly navigator: { readonly storage: { getDirectory(): Promise<Folder> } };
  readonly Worker: new (url: string, options: { readonly type: 'module' }) => WorkerLike;
  readonly document?: unknown;
  btoa(text: string): string;
  atob(base64: string): string;
  onmessage: unknown;
  postMessage(message: unknown): void;
}
const scope = globalThis as unknown as Scope;

let model: Model | undefined;
let session: Session | undefined;
let worker: WorkerLike | undefined;

function loaded(): Model {
  if (model === undefined) throw new Error('no model is loaded');
  return model;
}

function open(): Session {
  if (session === undefined) throw new Error('no session is open');
  return session;
}

const greedy = { temperature: 0, ignoreEos: true } as const;

const api = {
  async load({ url, kvCache }: LoadInput): Promise<null> {
    const size = { context: 1024, maxSessions: 2, batchSize: 32 };
    model = await loadModel(url, { ...size, kvCache: { ...kvCache, prefixSharing: false } });
    return null;
  },

  async begin({ prompt, maxTokens }: { prompt: number[]; maxTokens: number }): Promise<readonly number[]> {
    session?.dispose();
    session = loaded().createSession();
    return (await session.generate(prompt, { ...greedy, maxTokens }).result()).tokens;
  },

  async goOn(maxTokens: number): Promise<readonly number[]> {
    return (await open().resume({ maxTokens }).result()).tokens;
  },

  /** Saves to a file of the origin. */
  async save(path: string): Promise<null> {
    await open().save(path);
    return null;
  },

  /** The bytes of a saved session in base64, since arrays of numbers take seconds to transfer. */
  async saveBytes(_input: null): Promise<string> {
    const sink = memorySink();
    await open().save(sink);
    let text = '';
    for (const byte of sink.toBytes()) text += String.fromCharCode(byte);
    return scope.btoa(text);
  },

  async restore(path: string): Promise<null> {
    session?.dispose();
    session = await loaded().restoreSession(path);
    return null;
  },

  async restoreBytes(base64: string): Promise<null> {
    session?.dispose();
    const bytes = Uint8Array.from(scope.atob(base64), (character) => character.charCodeAt(0));
    session = await loaded().restoreSession(memorySource(bytes));
    return null;
  },

  /** Message of the error that restoring throws. */
  async restoreFails(path: string): Promise<string> {
    return loaded()
      .restoreSession(path)
      .then(
        () => 'it was restored',
        (error: Error) => `${error.name}: ${error.message}`,
      );
  },

  async tiers(_input: null): Promise<TierMetrics | null> {
    return loaded().metrics().tiers ?? null;
  },

  async filesOf(folder: string): Promise<string[]> {
    const names: string[] = [];
    const root = await scope.navigator.storage.getDirectory();
    const files = await root.getDirectoryHandle(folder).catch(() => undefined);
    if (files !== undefined) for await (const name of files.keys()) names.push(name);
    return names;
  },

  async dispose(_input: null): Promise<null> {
    session?.dispose();
    session = undefined;
    await model?.dispose();
    model = undefined;
    return null;
  },

  /** Calls a function in a worker, which is kept between calls. */
  async inWorker({ name, input }: { name: string; input: unknown }): Promise<unknown> {
    worker ??= new scope.Worker('/page.js', { type: 'module' });
    const own = worker;
    return new Promise((resolve, reject) => {
      own.onmessage = ({ data: { value, error } }) => {
        if (error === undefined) resolve(value);
        else reject(new Error(error));
      };
      own.onerror = ({ message }) => reject(new Error(message));
      own.postMessage({ name, input });
    });
  },
};

export type TiersPage = typeof api;

Object.assign(globalThis, { api });

if (scope.document === undefined) {
  const functions = api as unknown as Readonly<Record<string, (input: unknown) => Promise<unknown>>>;
  scope.onmessage = async ({ data: { name, input } }: { data: { name: string; input: unknown } }): Promise<void> => {
    try {
      scope.postMessage({ value: await functions[name]?.(input) });
    } catch (error) {
      scope.postMessage({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
    }
  };
}
