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

/**
 * @param handle of an empty file
 * @throws {IoError} when the file cannot be opened, or the page allows no workers from `blob:` URLs
 */
export async function openOpfsPages(name: string, handle: SyncFileHandle): Promise<PageFile> {
  return new OpfsPages(
    name,
    handle.createSyncAccessHandle === undefined ? await WorkerFile.open(name, handle) : await openHere(handle),
  );
}

class OpfsPages implements PageFile {
  readonly name: string;
  readonly #file: PlacedFile;
  #sizeBytes = 0;
  #isOpen = true;

  constructor(name: string, file: PlacedFile) {
    this.name = name;
    this.#file = file;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  async read(byteOffset: number, target: Uint8Array): Promise<void> {
    const bytes = await this.#attempt(byteOffset, () => this.#file.read(byteOffset, target.byteLength));
    target.set(bytes);
    if (bytes.byteLength === target.byteLength) return;
    const message = `unexpected end, expected ${target.byteLength - bytes.byteLength} more bytes`;
    throw new IoError({ source: this.name, byteOffset: byteOffset + bytes.byteLength, message });
  }

  async write(byteOffset: number, bytes: Uint8Array): Promise<void> {
    const written = await this.#attempt(byteOffset, () => this.#file.write(byteOffset, bytes));
    this.#sizeBytes = Math.max(this.#sizeBytes, byteOffset + written);
    if (written === bytes.byteLength) return;
    const message = `only ${written} of ${bytes.byteLength} bytes were written`;
    throw new IoError({ source: this.name, byteOffset, message });
  }

  sync(): Promise<void> {
    return this.#attempt(0, () => this.#file.sync());
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#file.close();
  }

  async #attempt<T>(byteOffset: number, action: () => Promise<T>): Promise<T> {
    if (!this.#isOpen) throw new ReleasedError(this.name);
    try {
      return await action();
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      throw new IoError({ source: this.name, byteOffset, message }, { cause });
    }
  }
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

interface Waiting {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** Browsers give no reason when a policy forbids a worker: some throw, others send an event without a message. */
const blocked = "the file's worker does not start: a Content-Security-Policy needs worker-src blob:";

function startWorker(): FileWorker {
  const browser = globalThis as unknown as Browser;
  const url = browser.URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  try {
    return new browser.Worker(url, { name: 'winnow-pages' });
  } finally {
    browser.URL.revokeObjectURL(url);
  }
}

/** A file that is held open by a dedicated worker. */
class WorkerFile implements PlacedFile {
  readonly #worker: FileWorker;
  readonly #waiting = new Map<number, Waiting>();
  #nextId = 0;
  #failure: Error | undefined;

  private constructor(worker: FileWorker) {
    this.#worker = worker;
    worker.onmessage = ({ data }) => this.#settle(data);
    worker.onerror = ({ message }) =>
      this.#fail(new Error(message === undefined ? blocked : `the file worker failed: ${message}`));
  }

  static async open(name: string, handle: SyncFileHandle): Promise<WorkerFile> {
    let worker: FileWorker | undefined;
    try {
      worker = startWorker();
      const file = new WorkerFile(worker);
      await file.#call('open', handle);
      return file;
    } catch (cause) {
      worker?.terminate();
      const message = worker === undefined ? blocked : (cause as Error).message;
      throw new IoError({ source: name, message }, { cause });
    }
  }

  async read(byteOffset: number, count: number): Promise<Uint8Array> {
    return (await this.#call('read', [byteOffset, count])) as Uint8Array;
  }

  async write(byteOffset: number, bytes: Uint8Array): Promise<number> {
    const copy = new Uint8Array(bytes);
    return (await this.#call('write', [byteOffset, copy], [copy.buffer])) as number;
  }

  async sync(): Promise<void> {
    await this.#call('sync');
  }

  async close(): Promise<void> {
    await this.#call('close').catch(() => undefined);
    this.#worker.terminate();
  }

  #call(action: string, argument?: unknown, transfer: readonly ArrayBuffer[] = []): Promise<unknown> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, action, argument }, transfer);
    });
  }

  #settle({ id, value, error }: Answer): void {
    const { resolve, reject } = this.#waiting.get(id) as Waiting;
    this.#waiting.delete(id);
    if (error === undefined) resolve(value);
    else reject(new Error(error));
  }

  #fail(error: Error): void {
    this.#failure = error;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
