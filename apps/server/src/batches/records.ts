/** Small objects in a blob store, each for its API key only: files and batches. */
import { setTimeout as sleep } from 'node:timers/promises';
import { BlobError, type BlobStore } from '@winnow/jobs';

/** Instead of the hash of a key, on servers without keys. */
const everybody = 'all';

export interface Identified {
  readonly id: string;
  readonly created_at: number;
}

export interface Page<T> {
  readonly object: 'list';
  readonly data: T[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
}

export interface PageOptions {
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
  readonly order?: 'asc' | 'desc' | undefined;
}

const defaultLimit = 20;
/** Maximum number of reads of a record that is replaced while it is read, such as by the progress of its batch. */
const maxReads = 3;
const idPattern = /^[A-Za-z0-9_-]{1,128}$/;

export class Records<T extends Identified> {
  readonly #blobs: BlobStore;
  readonly #kind: string;

  /** @param kind first part of the keys */
  constructor(blobs: BlobStore, kind: string) {
    this.#blobs = blobs;
    this.#kind = kind;
  }

  async get(id: string, owner: string | undefined): Promise<T | undefined> {
    if (!idPattern.test(id)) return undefined;
    const key = this.#keyOf(id, owner);
    return (await this.#blobs.stat(key)) === undefined ? undefined : this.#read(key);
  }

  async put(record: T, owner: string | undefined): Promise<void> {
    await this.#blobs.write(this.#keyOf(record.id, owner), [new TextEncoder().encode(JSON.stringify(record))]);
  }

  async delete(id: string, owner: string | undefined): Promise<boolean> {
    return idPattern.test(id) && (await this.#blobs.delete(this.#keyOf(id, owner)));
  }

  /** By time. */
  async page(
    owner: string | undefined,
    { after, limit = defaultLimit, order = 'desc' }: PageOptions,
  ): Promise<Page<T>> {
    const all = await this.#readAll(`${this.#kind}/${owner ?? everybody}/`);
    all.sort((a, b) => a.created_at - b.created_at || (a.id < b.id ? -1 : 1));
    if (order === 'desc') all.reverse();
    const begin = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1;
    const data = all.slice(begin, begin + limit);
    const [first, last] = [data[0]?.id ?? null, data.at(-1)?.id ?? null];
    return { object: 'list', data, first_id: first, last_id: last, has_more: begin + limit < all.length };
  }

  /** Those of all owners. */
  async all(): Promise<{ readonly record: T; readonly owner: string | undefined }[]> {
    const infos = await this.#blobs.list(`${this.#kind}/`);
    const found = infos.map(async ({ key }) => {
      const owner = key.split('/')[1];
      return { record: await this.#read(key), owner: owner === everybody ? undefined : owner };
    });
    return Promise.all(found);
  }

  async #readAll(prefix: string): Promise<T[]> {
    const infos = await this.#blobs.list(prefix);
    return Promise.all(infos.map(({ key }) => this.#read(key)));
  }

  async #read(key: string): Promise<T> {
    for (let count = 1; ; count++) {
      const parts: Buffer[] = [];
      try {
        for await (const part of this.#blobs.read(key)) parts.push(Buffer.from(part));
        return JSON.parse(Buffer.concat(parts).toString('utf8')) as T;
      } catch (error) {
        // some object stores return what has been written so far
        const isPart = error instanceof SyntaxError;
        const isReplaced = BlobError.isInstance(error) && error.reason === 'changed';
        if (!(isPart || isReplaced) || count === maxReads) throw error;
        if (isPart) await sleep(count * 10);
      }
    }
  }

  #keyOf(id: string, owner: string | undefined): string {
    return `${this.#kind}/${owner ?? everybody}/${id}.json`;
  }
}
