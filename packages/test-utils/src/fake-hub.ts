/** A local fake hub: the endpoints that downloads use, with configurable failures. */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { responseIdHeader, watchedFetch } from './watched-fetch.js';

export interface FakeRepo {
  /** Content by commit, then by path. */
  commits: Record<string, Record<string, Uint8Array>>;
  refs: Record<string, string>;
  /** Token required for access. */
  token?: string;
  gated?: boolean;
}

export interface LoggedRequest {
  kind: 'info' | 'tree' | 'resolve' | 'storage';
  path: string;
  range: string | undefined;
  authorization: string | undefined;
}

/** A response that is cut off once its reader has received a number of bytes. */
interface Unread {
  numBytes: number;
  readonly end: () => void;
}

export const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
export const gitSha1 = (bytes: Uint8Array): string =>
  createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');

const isLarge = (path: string): boolean => /\.(safetensors|gguf|bin)$/.test(path);

/** Allows pages of other origins to read responses, as the hub does; storage hosts hide the range of a part. */
function allowPages(response: ServerResponse): void {
  response.setHeader('access-control-allow-origin', '*');
  const exposed = ['ETag', 'Link', 'X-Error-Code', 'X-Linked-Etag', 'X-Linked-Size', responseIdHeader];
  response.setHeader('access-control-expose-headers', exposed.join(', '));
}

export class FakeHub {
  repos: Record<string, FakeRepo> = {};
  requests: LoggedRequest[] = [];
  pageSize = 1000;
  /**
   * By path: the numbers of bytes after which the next responses are cut off, once the reader has received them. The reader reports
   * them by using `fetch`, or by requesting `/read?id=…&bytes=…` with the reports of `watchedFetch`.
   */
  cuts: Record<string, number[]> = {};
  /** For downloads in this process. */
  readonly fetch: typeof fetch = watchedFetch((id, numBytes) => this.noteRead(id, numBytes));
  /** By path: bytes sent instead of the content. */
  wrong: Record<string, Uint8Array> = {};
  ignoresRange = false;
  /** Changes the entries of the tree response. */
  editTree: (entries: Record<string, unknown>[]) => unknown = (entries) => entries;
  /** Called before each piece of content. */
  beforeContent: (path: string) => Promise<void> = async () => {};
  /** Handles the request instead of the default when it returns true. */
  intercept: (request: IncomingMessage, response: ServerResponse) => boolean = () => false;
  readonly #unread = new Map<string, Unread>();
  #numResponses = 0;
  #waitsForReaders = true;
  readonly #hub: Server;
  readonly #storage: Server; // another origin, like the hub's CDN

  private constructor() {
    this.#hub = createServer((request, response) => {
      allowPages(response);
      void this.#answer(request, response);
    });
    this.#storage = createServer((request, response) => {
      allowPages(response);
      void this.#store(request, response);
    });
  }

  static async start(): Promise<FakeHub> {
    const fake = new FakeHub();
    for (const server of [fake.#hub, fake.#storage]) {
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    }
    return fake;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#hub.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    for (const server of [this.#hub, this.#storage]) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  }

  /** Notes that a reader has received these bytes of a response that is to be cut off. */
  noteRead(responseId: string, numBytes: number): void {
    const unread = this.#unread.get(responseId);
    if (unread === undefined) return;
    unread.numBytes -= numBytes;
    if (unread.numBytes <= 0) unread.end();
  }

  /** For readers that do not report: ends the responses that are to be cut off, and later ones immediately. */
  endCuts(): void {
    this.#waitsForReaders = false;
    for (const { end } of this.#unread.values()) end();
  }

  numRequests(kind: LoggedRequest['kind'], path?: string): number {
    return this.requests.filter((entry) => entry.kind === kind && (path === undefined || entry.path === path)).length;
  }

  /** Handles a report of a reading page; see `watchedFetch`. */
  #isReport({ url = '/' }: IncomingMessage, response: ServerResponse): boolean {
    const { pathname, searchParams } = new URL(url, this.endpoint);
    if (pathname !== '/read') return false;
    this.noteRead(searchParams.get('id') ?? '', Number(searchParams.get('bytes')));
    response.end();
    return true;
  }

  #log(kind: LoggedRequest['kind'], path: string, { headers }: IncomingMessage): void {
    this.requests.push({ kind, path, range: headers.range, authorization: headers.authorization });
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.intercept(request, response) || this.#isReport(request, response)) return;
    const url = new URL(request.url ?? '/', this.endpoint);
    const fail = (status: number, errorCode?: string): void => {
      response.writeHead(status, {
        ...(errorCode && { 'x-error-code': errorCode }),
        'content-type': 'application/json',
      });
      response.end(JSON.stringify({ error: errorCode ?? 'failed' }));
    };
    const match =
      /^\/api\/models\/([^/]+\/[^/]+)\/(revision|tree)\/([^/]+)$/.exec(url.pathname) ??
      /^\/([^/]+\/[^/]+)\/(resolve)\/([^/]+)\/(.+)$/.exec(url.pathname);
    const [, name = '', kind, rawRevision = '', rawPath = ''] = match ?? [];
    const repo = this.repos[name];
    const path = decodeURIComponent(rawPath);
    this.#log(
      kind === 'revision' ? 'info' : kind === 'tree' ? 'tree' : 'resolve',
      kind === 'resolve' ? path : url.pathname,
      request,
    );
    const authorization = request.headers.authorization;
    if (repo === undefined) return fail(authorization === undefined ? 401 : 404, 'RepoNotFound');
    if (repo.token !== undefined && authorization !== `Bearer ${repo.token}`) {
      return authorization === undefined ? fail(401, 'RepoNotFound') : fail(401);
    }
    const revision = decodeURIComponent(rawRevision);
    const commit = repo.refs[revision] ?? revision;
    const files = repo.commits[commit];
    if (files === undefined) return fail(404, 'RevisionNotFound');
    if (kind === 'revision') {
      response.setHeader('content-type', 'application/json');
      response.end(
        JSON.stringify({ _id: '1', id: name, sha: commit, gated: repo.gated ?? false, lastModified: '2026-01-01' }),
      );
      return;
    }
    if (kind === 'tree') return this.#tree(url, files, response);
    if (repo.gated === true) return fail(403, 'GatedRepo');
    const content = files[path];
    if (content === undefined) return fail(404, 'EntryNotFound');
    if (isLarge(path)) {
      const { port } = this.#storage.address() as AddressInfo;
      response.writeHead(302, {
        location: `http://127.0.0.1:${port}/${sha256(content)}?path=${encodeURIComponent(path)}`,
        'x-linked-size': String(content.length),
        'x-linked-etag': `"${sha256(content)}"`,
        'x-repo-commit': commit,
      });
      response.end();
      return;
    }
    response.setHeader('etag', `"${gitSha1(content)}"`);
    response.setHeader('x-repo-commit', commit);
    await this.#send(request, response, path, content);
  }

  #tree(url: URL, files: Record<string, Uint8Array>, response: ServerResponse): void {
    const paths = Object.keys(files).sort();
    const folders = new Set(
      paths.flatMap((path) => (path.includes('/') ? [path.slice(0, path.lastIndexOf('/'))] : [])),
    );
    const entries: Record<string, unknown>[] = [
      ...[...folders].map((path) => ({ type: 'directory', oid: '0'.repeat(40), size: 0, path })),
      ...paths.map((path) => {
        const content = files[path] as Uint8Array;
        const lfs = { oid: sha256(content), size: content.length, pointerSize: 130 };
        return isLarge(path)
          ? {
              type: 'file',
              oid: gitSha1(Buffer.from('pointer')),
              size: content.length,
              lfs,
              xetHash: 'f'.repeat(64),
              path,
            }
          : { type: 'file', oid: gitSha1(content), size: content.length, path };
      }),
    ];
    const cursor = Number(url.searchParams.get('cursor') ?? 0);
    const page = entries.slice(cursor, cursor + this.pageSize);
    if (cursor + page.length < entries.length) {
      url.searchParams.set('cursor', String(cursor + page.length));
      response.setHeader('link', `<${url.href}>; rel="next"`);
    }
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(this.editTree(page)));
  }

  async #store(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://storage');
    const path = url.searchParams.get('path') ?? '';
    this.#log('storage', path, request);
    const contents = Object.values(this.repos)
      .flatMap(({ commits }) => Object.values(commits))
      .flatMap((files) => Object.values(files));
    const content = contents.find((bytes) => sha256(bytes) === url.pathname.slice(1));
    if (content === undefined) {
      response.writeHead(404).end();
      return;
    }
    response.setHeader('etag', `"${sha256(content).slice(0, 32)}"`);
    await this.#send(request, response, path, content);
  }

  async #send(request: IncomingMessage, response: ServerResponse, path: string, original: Uint8Array): Promise<void> {
    response.setHeader(responseIdHeader, ++this.#numResponses);
    const content = this.wrong[path] ?? original;
    const range = this.ignoresRange ? null : /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    let body = content;
    if (range !== null) {
      const start = Number(range[1]);
      const end = range[2] === '' ? content.length - 1 : Math.min(Number(range[2]), content.length - 1);
      if (start >= content.length) {
        response.writeHead(416, { 'content-range': `bytes */${content.length}` }).end();
        return;
      }
      body = content.subarray(start, end + 1);
      response.writeHead(206, {
        'content-range': `bytes ${start}-${end}/${content.length}`,
        'content-length': body.length,
      });
    } else response.writeHead(200, { 'content-length': body.length });
    await this.beforeContent(path);
    const cut = this.cuts[path]?.shift();
    if (cut === undefined || cut >= body.length) {
      response.end(body);
      return;
    }
    const id = String(response.getHeader(responseIdHeader));
    this.#unread.set(id, { numBytes: cut, end: () => response.destroy() });
    response.write(body.subarray(0, cut), () => {
      if (!this.#waitsForReaders) response.destroy();
    });
  }
}
