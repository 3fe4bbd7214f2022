/** Uploaded files and results, in a blob store. */
import type { BlobContent, BlobStore } from '@winnow/jobs';
import type { FileObject } from '../schemas/batches.js';
import { Records, type Page, type PageOptions } from './records.js';

/** What is stored of a file besides its content. */
interface FileRecord extends FileObject {
  readonly sha256: string;
}

export interface NewFile {
  readonly id: string;
  readonly filename: string;
  readonly purpose: FileObject['purpose'];
  readonly createdAt: number;
}

export class FileStore {
  readonly #blobs: BlobStore;
  readonly #records: Records<FileRecord>;

  constructor(blobs: BlobStore) {
    this.#blobs = blobs;
    this.#records = new Records(blobs, 'files');
  }

  /** Writes the content first: a file that is listed is complete. */
  async write(file: NewFile, content: BlobContent, owner: string | undefined): Promise<FileObject> {
    const { id, filename, purpose, createdAt } = file;
    const { sizeBytes, sha256 } = await this.#blobs.write(`contents/${id}`, content);
    const object: FileObject = {
      ...{ id, object: 'file', bytes: sizeBytes, created_at: createdAt, filename, purpose, status: 'processed' },
    };
    await this.#records.put({ ...object, sha256 }, owner);
    return object;
  }

  async get(id: string, owner: string | undefined): Promise<FileObject | undefined> {
    const record = await this.#records.get(id, owner);
    return record === undefined ? undefined : objectOf(record);
  }

  /** The content, checked against what was written. Undefined for a file that does not exist. */
  async read(id: string, owner: string | undefined): Promise<AsyncIterable<Uint8Array> | undefined> {
    const record = await this.#records.get(id, owner);
    return record === undefined ? undefined : this.#blobs.read(`contents/${id}`, { sha256: record.sha256 });
  }

  async page(owner: string | undefined, options: PageOptions): Promise<Page<FileObject>> {
    const page = await this.#records.page(owner, options);
    return { ...page, data: page.data.map(objectOf) };
  }

  async delete(id: string, owner: string | undefined): Promise<boolean> {
    const isThere = await this.#records.delete(id, owner);
    if (isThere) await this.#blobs.delete(`contents/${id}`);
    return isThere;
  }
}

function objectOf({ sha256: _sha256, ...object }: FileRecord): FileObject {
  return object;
}
