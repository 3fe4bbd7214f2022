/**
 * A file of the page's origin that is read and written in place. Only dedicated workers may do that, so other contexts
 * use a small worker. The page must allow workers from `blob:` URLs.
 */
import type { PageFile } from '@winnow/kv-cache';
import { IoError, ReleasedError } from '@winnow/tensor';

interface SyncFile {
  read(target: Uint8Array, options: { readonly at: number }): number;
  write(bytes: Uint8Array, options: { readonly at: number }): number;
  flush(): void;
  close(): void;
}

export interface SyncFileHandle {
  /** Only in dedicated workers. */
  createSyncAccessHandle?(): Promise<SyncFile>;
}

/** Operations on a file, here or in a worker. Errors are those of the browser. */
interface PlacedFile {
  /** @returns the available bytes, at most `count` */
  read(byteOffset: number, count: number): Promise<Uint8Array>;
  /** @returns how many bytes were written */
  write(byteOffset: number, bytes: Uint8Array): Promise<number>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** @param handle of an empty file */
export async function openOpfsPages(name: string, handle: SyncFileHandle): Promise<PageFile> {
  const file = handle.createSyncAccessHandle === undefined ? await openInWorker(handle) : await openHere(handle);
  let sizeBytes = 0;
  let isOpen = true;
  async function attempt<T>(byteOffset: number, action: () => Promise<T>): Promise<T> {
    if (!isOpen) throw new ReleasedError(name);
    try {
      return await action();
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      throw new IoError({ source: name, byteOffset, message }, { cause });
    }
  }
  return {
    name,
    get sizeBytes() {
      return sizeBytes;
    },
    async read(byteOffset, target) {
      const bytes = await attempt(byteOffset, () => file.read(byteOffset, target.byteLength));
      target.set(bytes);
      if (bytes.byteLength === target.byteLength) return;
      const message = `unexpected end, expected ${target.byteLength - bytes.byteLength} more bytes`;
      throw new IoError({ source: name, byteOffset: byteOffset + bytes.byteLength, message });
    },
    async write(byteOffset, bytes) {
      const written = await attempt(byteOffset, () => file.write(byteOffset, bytes));
      sizeBytes = Math.max(sizeBytes, byteOffset + written);
      if (written === bytes.byteLength) return;
      const message = `only ${written} of ${bytes.byteLength} bytes were written`;
      throw new IoError({ source: name, byteOffset, message });
    },
    sync: () => attempt(0, () => file.sync()),
    async close() {
      if (!isOpen) return;
      isOpen = false;
      await file.close();
    },
  };
}

async function openHere(handle: SyncFileHandle): Promise<PlacedFile> {
  const file = await (handle as Required<SyncFileHandle>).createSyncAccessHandle();
  return {
    async read(byteOffset, count) {
      const bytes = new Uint8Array(count);
      return bytes.subarray(0, file.read(bytes, { at: byteOffset }));
    },
    write: async (byteOffset, bytes) => file.write(bytes, { at: byteOffset }),
    sync: async () => file.flush(),
    close: async () => file.close(),
  };
}

interface FileWorker {
  onmessage: ((event: { readonly data: Answer }) => void) | null;
  onerror: ((event: { readonly message?: string }) => void) | null;
  postMessage(message: unknown, transfer?: readonly ArrayBuffer[]): void;
  terminate(): void;
}
interface Browser {
  readonly Worker: new (url: string, options: { readonly name: string }) => FileWorker;
  readonly URL: { createObjectURL(blob: Blob): string; revokeObjectURL(url: string): void };
}
interface Answer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

/** Handles one message at a time; bytes are transferred without a copy. */
const source = `
let file;
const actions = {
  open: async (handle) => void (file = await handle.createSyncAccessHandle()),
  read: ([at, count]) => {
    const bytes = new Uint8Array(count);
    return bytes.subarray(0, file.read(bytes, { at }));
  },
  write: ([at, bytes]) => file.write(bytes, { at }),
  sync: () => file.flush(),
  close: () => file.close(),
};
onmessage = async ({ data: { id, action, argument } }) => {
  try {
    const value = await actions[action](argument);
    postMessage({ id, value }, value instanceof Uint8Array ? [value.buffer] : []);
  } catch (error) {
    postMessage({ id, error: error.name + ': ' + error.message });
  }
};
`;

async function openInWorker(handle: SyncFileHandle): Promise<PlacedFile> {
  const browser = globalThis as unknown as Browser;
  const url = browser.URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  const worker = new browser.Worker(url, { name: 'winnow-pages' });
  browser.URL.revokeObjectURL(url);
  const waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  let nextId = 0;
  let failure: Error | undefined;
  worker.onmessage = ({ data: { id, value, error } }) => {
    const { resolve, reject } = waiting.get(id) as { resolve(value: unknown): void; reject(error: Error): void };
    waiting.delete(id);
    if (error === undefined) resolve(value);
    else reject(new Error(error));
  };
  worker.onerror = ({ message }) => {
    failure = new Error(`the file worker failed: ${message ?? ''}`);
    for (const { reject } of waiting.values()) reject(failure);
    waiting.clear();
  };
  function call(action: string, argument?: unknown, transfer: readonly ArrayBuffer[] = []): Promise<unknown> {
    if (failure !== undefined) return Promise.reject(failure);
    const id = nextId++;
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      worker.postMessage({ id, action, argument }, transfer);
    });
  }
  try {
    await call('open', handle);
  } catch (error) {
    worker.terminate();
    throw error;
  }
  return {
    read: async (byteOffset, count) => (await call('read', [byteOffset, count])) as Uint8Array,
    async write(byteOffset, bytes) {
      const copy = new Uint8Array(bytes);
      return (await call('write', [byteOffset, copy], [copy.buffer])) as number;
    },
    async sync() {
      await call('sync');
    },
    async close() {
      await call('close').catch(() => undefined);
      worker.terminate();
    },
  };
}
