/** The requests of a download: the commit of a revision, the files of a commit, and the content of a file. */
import { isRecord } from '@winnow/tensor';
import { isSafeFileName } from '../file-name.js';
import { MAX_FILES } from '../limits.js';
import { HubError } from './error.js';
import { createAnswerFetch, createHubFetch, createRangeFetch, messageOf, type HubFetchOptions } from './fetch.js';
import { isCommit, type RepoFile } from './repo-file.js';

/** The hub returns a thousand files per page; this bounds a server whose listing never ends. */
const maxListRequests = 1000;

export class HubClient {
  readonly #repo: string;
  readonly #endpoint: string;
  readonly #signal: AbortSignal | undefined;
  readonly #fetch: typeof fetch;
  readonly #fetchAnswer: typeof fetch;

  constructor(options: HubFetchOptions) {
    this.#repo = options.repo;
    this.#endpoint = options.endpoint;
    this.#signal = options.signal;
    this.#fetch = createHubFetch(options);
    this.#fetchAnswer = createAnswerFetch(this.#fetch, options.repo);
  }

  /** The commit of a branch or tag. */
  async commitOf(revision: string): Promise<string> {
    const { value } = await this.#json(this.#api('revision', revision));
    const commit = isRecord(value) ? value['sha'] : undefined;
    if (!isCommit(commit)) throw this.#refuse('the hub returned no commit for the revision');
    return commit;
  }

  /** The files of a commit, except those whose names are invalid in a folder or escape it. */
  async files(commit: string): Promise<RepoFile[]> {
    const files: RepoFile[] = [];
    let url: string | undefined = `${this.#api('tree', commit)}?recursive=true`;
    for (let numRequests = 0; url !== undefined; numRequests++) {
      if (numRequests === maxListRequests) throw this.#refuse('the file listing does not end');
      const { value, next } = await this.#json(url);
      if (!Array.isArray(value)) throw this.#refuse('malformed response: the file listing is no list');
      for (const entry of value) {
        if (!isRecord(entry)) throw this.#malformed(entry);
        if (entry['type'] === 'file' && isSafeFileName(String(entry['path']))) files.push(this.#fileOf(entry));
      }
      if (files.length > MAX_FILES) throw this.#refuse(`more than ${MAX_FILES} files`);
      url = next;
    }
    return files;
  }

  /** The content of a file from an offset on, over plain HTTP: the hub's xet protocol cannot be resumed. */
  async open(commit: string, { path, sizeBytes }: RepoFile, byteOffset: number): Promise<AsyncIterable<Uint8Array>> {
    const name = path.split('/').map(encodeURIComponent).join('/');
    const request = createRangeFetch(this.#fetch, { source: path, sizeBytes });
    const headers: Record<string, string> = byteOffset === 0 ? {} : { range: `bytes=${byteOffset}-` };
    const url = `${this.#endpoint}/${this.#repo}/resolve/${commit}/${name}`;
    // a browser would store it a second time
    const { body } = await request(url, { headers, cache: 'no-store' });
    return piecesOf(body as ReadableStream<Uint8Array>);
  }

  #api(what: 'revision' | 'tree', revision: string): string {
    return `${this.#endpoint}/api/models/${this.#repo}/${what}/${encodeURIComponent(revision)}`;
  }

  async #json(url: string): Promise<{ readonly value: unknown; readonly next: string | undefined }> {
    const response = await this.#fetchAnswer(url);
    const [, next] = /<([^>]+)>; *rel="next"/.exec(response.headers.get('link') ?? '') ?? [];
    try {
      return { value: await response.json(), next: next && new URL(next, url).href };
    } catch (cause) {
      this.#signal?.throwIfAborted();
      throw this.#refuse(`malformed response: ${messageOf(cause)}`, cause);
    }
  }

  #fileOf(entry: Readonly<Record<string, unknown>>): RepoFile {
    const { path, lfs, oid, xetHash, size } = entry;
    const large = isRecord(lfs) ? lfs : undefined;
    const sizeBytes = large?.['size'] ?? size;
    const etag = large?.['oid'] ?? oid ?? xetHash;
    const isSize = Number.isSafeInteger(sizeBytes) && (sizeBytes as number) >= 0;
    if (!isSize || typeof etag !== 'string' || !/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(etag)) {
      throw this.#malformed(entry);
    }
    const hash = large !== undefined ? 'sha256' : xetHash === undefined ? 'git-sha1' : undefined;
    return { path: String(path), sizeBytes: sizeBytes as number, etag, hash };
  }

  #malformed(entry: unknown): HubError {
    return this.#refuse(`malformed entry in the file listing: ${JSON.stringify(entry).slice(0, 300)}`);
  }

  #refuse(message: string, cause?: unknown): HubError {
    return new HubError({ source: this.#repo, reason: 'server', message }, { cause });
  }
}

/** Streams of some browsers cannot be iterated. */
async function* piecesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
