/** In a worker of the page, which alone can write: downloads from a hub into the origin private file system. */
import { downloadedBytes, downloadRepo, HubError, type DownloadedBytes, type OpfsFolder } from '@winnow/hub/browser';
import { watchedFetch } from '@winnow/test-utils/watched-fetch';

export interface Settings {
  readonly endpoint: string;
  readonly offline?: boolean;
  /** Default: those that a model needs. */
  readonly files?: readonly string[];
  /** Aborts when so many bytes of all files are loaded. */
  readonly abortAt?: number;
}

export interface Downloaded {
  readonly commit: string;
  /** SHA-256 of each file. */
  readonly files: Readonly<Record<string, string>>;
}

interface Scope {
  readonly navigator: { readonly storage: { getDirectory(): Promise<OpfsFolder> } };
  readonly Worker: new (url: string, options: { readonly type: 'module' }) => WorkerLike;
  readonly crypto: { readonly subtle: { digest(algorithm: string, bytes: ArrayBuffer): Promise<ArrayBuffer> } };
  readonly document?: unknown;
  onmessage: ((event: { readonly data: readonly [name: string, input: unknown] }) => void) | null;
  postMessage(message: unknown): void;
}

interface WorkerLike {
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  postMessage(message: unknown): void;
}

const scope = globalThis as unknown as Scope;

async function folder(): Promise<OpfsFolder> {
  return (await scope.navigator.storage.getDirectory()).getDirectoryHandle('hub', { create: true });
}

async function digestOf(blob: Blob): Promise<string> {
  const bytes = await scope.crypto.subtle.digest('SHA-256', await blob.arrayBuffer());
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

const work = {
  async download({ abortAt = Infinity, ...options }: Settings): Promise<Downloaded | string> {
    const controller = new AbortController();
    try {
      const { commit, files } = await downloadRepo({
        ...{ ...options, repo: 'org/model', folder: await folder(), signal: controller.signal },
        fetch: watchedFetch((id, bytes) => void fetch(`${options.endpoint}/read?id=${id}&bytes=${bytes}`)),
        onProgress: ({ allLoadedBytes }) => {
          if (allLoadedBytes >= abortAt) controller.abort();
        },
      });
      const digests = await Promise.all([...files].map(async ([name, blob]) => [name, await digestOf(blob)] as const));
      return { commit, files: Object.fromEntries(digests) };
    } catch (error) {
      if (controller.signal.aborted) return 'aborted';
      return error instanceof HubError ? error.reason : String(error);
    }
  },

  async usage(): Promise<DownloadedBytes> {
    return downloadedBytes(await folder());
  },

  /** Names of the blobs. */
  async blobs(): Promise<string[]> {
    const names: string[] = [];
    for await (const name of (await (await folder()).getDirectoryHandle('blobs')).keys()) names.push(name);
    return names.sort();
  },

  /** Overwrites a byte of each unfinished file. */
  async damage(): Promise<null> {
    const blobs = await (await folder()).getDirectoryHandle('blobs');
    for await (const name of blobs.keys()) {
      if (!name.endsWith('.incomplete')) continue;
      const access = await (await blobs.getFileHandle(name)).createSyncAccessHandle();
      access.write(Uint8Array.of(1), { at: 10 });
      access.close();
    }
    return null;
  },

  async clear(): Promise<null> {
    await (await scope.navigator.storage.getDirectory()).removeEntry('hub', { recursive: true });
    return null;
  },
};

type Work = typeof work;
type Name = keyof Work;

function ask<N extends Name>(name: N, input: unknown): ReturnType<Work[N]> {
  worker ??= new scope.Worker('page.js', { type: 'module' });
  const { promise, resolve } = Promise.withResolvers<unknown>();
  worker.onmessage = ({ data }) => resolve(data);
  worker.postMessage([name, input]);
  return promise as ReturnType<Work[N]>;
}

let worker: WorkerLike | undefined;

const names = Object.keys(work) as Name[];
const api = Object.fromEntries(names.map((name) => [name, (input: unknown) => ask(name, input)]));

export type HubPage = {
  readonly [N in Name]: (input: Parameters<Work[N]> extends [infer Input] ? Input : null) => ReturnType<Work[N]>;
};

if (scope.document === undefined) {
  scope.onmessage = ({ data: [name, input] }) =>
    void (work[name as Name] as (input: unknown) => Promise<unknown>)(input).then((result) =>
      scope.postMessage(result),
    );
} else Object.assign(globalThis, { api });
