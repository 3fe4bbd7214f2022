/** `/v1/files` */
import multipart, { type MultipartFile } from '@fastify/multipart';
import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { FileStore } from '../batches/file-store.js';
import { answers } from '../http/answers.js';
import { ApiError, missingParameter } from '../http/api-error.js';
import { ListQuery, type FileObject } from '../schemas/batches.js';

export interface FileContext {
  readonly files: FileStore;
  readonly ownerOf: (request: FastifyRequest) => string | undefined;
  readonly maxFileBytes: number;
  readonly corsOrigins: readonly string[];
}

const params = { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] };
const idOf = (request: FastifyRequest): string => (request.params as { id: string }).id;
const tags = ['Batches'];

export function registerFileRoutes(app: FastifyInstance, context: FileContext): void {
  registerUpload(app, context);
  registerStored(app, context);
}

function registerUpload(app: FastifyInstance, { files, ownerOf, maxFileBytes, corsOrigins }: FileContext): void {
  void app.register(multipart, { limits: { files: 1, fields: 8, fieldSize: 1000, fileSize: maxFileBytes } });
  // a page of another site can send a form without a preflight
  const requireOwnOrigin = async ({ headers }: FastifyRequest): Promise<void> => {
    const { origin, host } = headers;
    if (origin === undefined || corsOrigins.includes('*') || corsOrigins.includes(origin)) return;
    if (URL.canParse(origin) && new URL(origin).host === host) return;
    throw new ApiError({ status: 403, message: `Uploads from ${origin} are not allowed`, code: 'forbidden_origin' });
  };
  app.post(
    '/v1/files',
    {
      schema: {
        operationId: 'createFile',
        summary: 'Uploads a file of requests: a form with the fields file and purpose, which is batch.',
        tags,
        consumes: ['multipart/form-data'],
        response: answers('File'),
      },
      onRequest: requireOwnOrigin,
    },
    async (request): Promise<FileObject> => {
      if (!request.isMultipart()) {
        throw new ApiError({ status: 415, message: 'expected multipart/form-data', code: 'unsupported_media_type' });
      }
      return upload(request, files, ownerOf(request), maxFileBytes);
    },
  );
}

/** The file is streamed to its store, whichever field comes first. */
async function upload(
  request: FastifyRequest,
  files: FileStore,
  owner: string | undefined,
  maxFileBytes: number,
): Promise<FileObject> {
  const id = `file-${randomUUID().replaceAll('-', '')}`;
  const createdAt = Math.floor(Date.now() / 1000);
  let [written, purpose]: [FileObject | undefined, unknown] = [undefined, undefined];
  try {
    for await (const part of request.parts()) {
      if (part.type === 'field') {
        if (part.fieldname === 'purpose') purpose = part.value;
        continue;
      }
      if (part.fieldname !== 'file')
        throw new ApiError({ status: 400, message: `unexpected file '${part.fieldname}'` });
      written = await files.write(
        { id, filename: part.filename, purpose: 'batch', createdAt },
        whole(part, maxFileBytes),
        owner,
      );
    }
    if (written === undefined) throw missingParameter('file');
    if (purpose === undefined) throw missingParameter('purpose', "'batch'");
    if (purpose === 'batch') return written;
    const message = `purpose: expected 'batch', got '${String(purpose)}'`;
    throw new ApiError({ status: 400, message, param: 'purpose', code: 'invalid_value' });
  } catch (error) {
    if (written !== undefined) await files.delete(id, owner);
    throw error;
  }
}

/** @throws {ApiError} 413 at the limit, where the stream just ends */
async function* whole({ file }: MultipartFile, maxFileBytes: number): AsyncGenerator<Uint8Array, void, void> {
  yield* file as AsyncIterable<Uint8Array>;
  if (!file.truncated) return;
  const message = `file: expected at most ${maxFileBytes} bytes`;
  throw new ApiError({ status: 413, message, param: 'file', code: 'request_too_large' });
}

function registerStored(app: FastifyInstance, { files, ownerOf }: FileContext): void {
  app.get(
    '/v1/files',
    {
      schema: {
        operationId: 'listFiles',
        summary: 'Your files.',
        tags,
        querystring: ListQuery,
        response: answers('FileList'),
      },
    },
    (request) => {
      const { after, limit, order } = request.query as ListQuery;
      return files.page(ownerOf(request), { after, order, limit: limit === undefined ? undefined : Number(limit) });
    },
  );
  app.get(
    '/v1/files/:id',
    { schema: { operationId: 'retrieveFile', summary: 'One of your files.', tags, params, response: answers('File') } },
    async (request) => (await files.get(idOf(request), ownerOf(request))) ?? notFound('File', idOf(request)),
  );
  app.get(
    '/v1/files/:id/content',
    {
      schema: {
        operationId: 'downloadFile',
        summary: 'The content of a file.',
        tags,
        params,
        response: {
          200: { description: 'The content.', content: { 'application/jsonl': { schema: { type: 'string' } } } },
        },
      },
    },
    async (request, reply) => {
      const content = (await files.read(idOf(request), ownerOf(request))) ?? notFound('File', idOf(request));
      return reply.type('application/jsonl').send(Readable.from(copied(content), { objectMode: false }));
    },
  );
  app.delete(
    '/v1/files/:id',
    {
      schema: { operationId: 'deleteFile', summary: 'Deletes a file.', tags, params, response: answers('DeletedFile') },
    },
    async (request) => {
      const id = idOf(request);
      if (!(await files.delete(id, ownerOf(request)))) notFound('File', id);
      return { id, object: 'file', deleted: true };
    },
  );
}

/** Parts of a blob are valid until the next one, and a stream keeps several. */
async function* copied(parts: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, void, void> {
  for await (const part of parts) yield Buffer.from(part);
}

/** @throws {ApiError} 404, also for objects of another API key */
export function notFound(what: string, id: string): never {
  throw new ApiError({ status: 404, message: `${what} with id '${id}' not found`, param: 'id', code: 'not_found' });
}
