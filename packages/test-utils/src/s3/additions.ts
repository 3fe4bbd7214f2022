/** Parts of S3 that s3rver lacks, implemented on its folder of uploads. */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { dirname, join } from 'node:path';

/** The folder of a bucket of s3rver. */
export class BucketFolder {
  readonly #folder: string;
  readonly #uploads: string;
  /** Keys that a conditional write is about to create. */
  readonly claimed: Set<string> = new Set<string>();

  constructor(folder: string) {
    this.#folder = folder;
    this.#uploads = join(folder, '._S3rver_uploads');
  }

  etagOf(key: string): string | undefined {
    const path = join(this.#folder, `${key}._S3rver_object.md5`);
    return existsSync(path) ? `"${readFileSync(path, 'utf8')}"` : undefined;
  }

  read(key: string): string {
    return readFileSync(join(this.#folder, `${key}._S3rver_object`), 'utf8');
  }

  write(key: string, content: string): void {
    const path = join(this.#folder, `${key}._S3rver_object`);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
    writeFileSync(`${path}.md5`, createHash('md5').update(content).digest('hex'));
  }

  uploads(): string[] {
    return existsSync(this.#uploads) ? readdirSync(this.#uploads) : [];
  }

  keyOf(id: string): string {
    return readFileSync(join(this.#uploads, id, 'key'), 'utf8');
  }

  begunAt(id: string): string {
    return statSync(join(this.#uploads, id, 'key')).mtime.toISOString();
  }

  parts(id: string): { readonly number: number; readonly sizeBytes: number; readonly md5: string }[] {
    const names = readdirSync(join(this.#uploads, id)).filter((name) => name.endsWith('.md5'));
    return names.map((name) => {
      const path = join(this.#uploads, id, name);
      const sizeBytes = statSync(path.slice(0, -'.md5'.length)).size;
      return { number: Number.parseInt(name, 10), sizeBytes, md5: readFileSync(path, 'utf8') };
    });
  }

  /** Uploads without parts that began long ago. */
  leaveUploads(key: string, count: number): void {
    for (let number = 0; number < count; number++) {
      const path = join(this.#uploads, `left-${number}`, 'key');
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, key);
      utimesSync(path, number + 1, number + 1);
    }
  }

  discard(id: string): void {
    rmSync(join(this.#uploads, id), { recursive: true, force: true });
  }
}

/** Answers the requests that s3rver does not support, and leaves the rest to it. */
export function answerRequest(
  folder: BucketFolder,
  s3rver: RequestListener,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  const { pathname, searchParams: query } = new URL(request.url ?? '/', 'http://localhost');
  const key = decodeURIComponent(pathname.split('/').slice(2).join('/'));
  const id = query.get('uploadId');
  const { 'if-none-match': noneMatch } = request.headers;
  if (request.method === 'GET' && query.has('uploads')) {
    return xml(response, 200, listUploads(folder, query));
  }
  if (id !== null && !folder.uploads().includes(id)) return failure(response, 404, 'NoSuchUpload');
  if (id !== null && request.method === 'GET') return xml(response, 200, listParts(folder, id));
  if (id !== null && request.method === 'DELETE') {
    folder.discard(id);
    return void response.writeHead(204).end();
  }
  const isWrite = request.method === 'PUT' || request.method === 'POST';
  const isNew = isWrite && noneMatch === '*';
  if (isNew && folder.claimed.has(key)) return failure(response, 409, 'ConditionalRequestConflict');
  if (isNew && folder.etagOf(key) !== undefined) {
    return failure(response, 412, 'PreconditionFailed');
  }
  if (isNew) {
    folder.claimed.add(key);
    response.once('close', () => folder.claimed.delete(key));
  }
  s3rver(request, response);
}

export function failure(response: ServerResponse, status: number, code: string): void {
  xml(response, status, `<Error><Code>${code}</Code><Message>${code}</Message></Error>`);
}

function xml(response: ServerResponse, status: number, body: string): void {
  response.writeHead(status, { 'content-type': 'application/xml' }).end(`<?xml version="1.0"?>${body}`);
}

/** Uploads of a page; a service decides how many, S3 lists up to 1000. */
const maxUploads = 10;

/** Ordered by key, and for each key by start time. */
function listUploads(folder: BucketFolder, query: URLSearchParams): string {
  const prefix = query.get('prefix') ?? '';
  const [keyMarker, idMarker] = [query.get('key-marker') ?? '', query.get('upload-id-marker') ?? ''];
  const uploads = folder
    .uploads()
    .map((id) => ({ id, key: folder.keyOf(id), begunAt: folder.begunAt(id) }))
    .filter(({ key }) => key.startsWith(prefix))
    .toSorted((a, b) => compare(a.key, b.key) || compare(a.begunAt, b.begunAt) || compare(a.id, b.id));
  const marked = uploads.findIndex(({ key, id }) => key === keyMarker && id === idMarker);
  const left = marked < 0 ? uploads.filter(({ key }) => key > keyMarker) : uploads.slice(marked + 1);
  const page = left.slice(0, maxUploads);
  const entries = page.map(
    ({ id, key, begunAt }) =>
      `<Upload><Key>${key}</Key><UploadId>${id}</UploadId><Initiated>${begunAt}</Initiated></Upload>`,
  );
  const last = page.at(-1);
  const isTruncated = left.length > page.length;
  const next = isTruncated
    ? `<NextKeyMarker>${last?.key}</NextKeyMarker><NextUploadIdMarker>${last?.id}</NextUploadIdMarker>`
    : '';
  const state = `<IsTruncated>${isTruncated}</IsTruncated>${next}`;
  return `<ListMultipartUploadsResult>${state}${entries.join('')}</ListMultipartUploadsResult>`;
}

const compare = (a: string, b: string): number => Number(a > b) - Number(a < b);

function listParts(folder: BucketFolder, id: string): string {
  const entries = folder
    .parts(id)
    .map(
      ({ number, sizeBytes, md5 }) =>
        `<Part><PartNumber>${number}</PartNumber><Size>${sizeBytes}</Size><ETag>"${md5}"</ETag></Part>`,
    );
  return `<ListPartsResult><IsTruncated>false</IsTruncated>${entries.join('')}</ListPartsResult>`;
}
