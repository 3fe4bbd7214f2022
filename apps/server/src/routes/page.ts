/** A page for browsers: `index.html` at `/`, and what it loads below `/assets/`. Read once, so no request names a path. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname } from 'node:path';
import { ArgumentError } from '@winnow/tensor';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

export interface PageFile {
  readonly bytes: Buffer;
  readonly type: string;
  readonly etag: string;
}

export interface Page {
  readonly index: PageFile;
  /** By name, which contains a hash of the content. */
  readonly assets: ReadonlyMap<string, PageFile>;
}

const types: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/**
 * The page has no inline code and talks to its own server and these origins only. `data:` images are those of its style
 * sheet.
 */
function policyOf(origins: readonly string[]): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    ["connect-src 'self'", ...origins].join(' '),
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}

/** Anything else could extend the policy. */
function checkOrigin(origin: string): void {
  if (/^https?:/.test(origin) && URL.canParse(origin) && new URL(origin).origin === origin) return;
  const expected = 'an origin such as https://example.com, without a path';
  throw new ArgumentError({ argument: 'pageOrigins', expected, actual: origin });
}

const securityHeaders = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

/**
 * Reads the files of a page.
 * @throws {ArgumentError} when the folder has no `index.html`
 */
export async function readPage(folder: URL): Promise<Page> {
  const base = new URL(folder.href.endsWith('/') ? folder : `${folder.href}/`);
  const index = await readPageFile(new URL('index.html', base)).catch((error: unknown) => {
    const expected = 'the folder of a built page with index.html';
    throw new ArgumentError({ argument: 'page', expected, actual: folder.href, hint: String(error) });
  });
  const names = await readdir(new URL('assets/', base));
  const assets = names.map(async (name) => [name, await readPageFile(new URL(`assets/${name}`, base))] as const);
  return { index, assets: new Map(await Promise.all(assets)) };
}

async function readPageFile(url: URL): Promise<PageFile> {
  return pageFile(await readFile(url), extname(url.pathname));
}

/** @param extension with its dot */
export function pageFile(content: Buffer | string, extension: string): PageFile {
  const bytes = Buffer.from(content);
  const type = types[extension] ?? 'application/octet-stream';
  return { bytes, type, etag: `"${createHash('sha256').update(bytes).digest('base64url')}"` };
}

/**
 * Needs no API key: the page is the same for everyone, and asks for the key.
 * @throws {ArgumentError} for one of `origins` that is no origin
 */
export function registerPageRoutes(
  app: FastifyInstance,
  { index, assets }: Page,
  origins: readonly string[] = [],
): void {
  for (const origin of origins) checkOrigin(origin);
  const headers = { ...securityHeaders, 'content-security-policy': policyOf(origins) };
  const options = { schema: { hide: true }, config: { isPublic: true } };
  app.get('/', options, (request, reply) => {
    void reply.header('vary', 'accept');
    // clients of the API that ask for the root get what they got without a page
    if (!(request.headers.accept ?? '').includes('text/html')) return reply.callNotFound();
    return sendFile(request, reply.headers({ ...headers, 'cache-control': 'no-cache' }), index);
  });
  app.get<{ Params: { name: string } }>('/assets/:name', options, (request, reply) => {
    const file = assets.get(request.params.name);
    if (file === undefined) return reply.callNotFound();
    const cacheControl = 'public, max-age=31536000, immutable';
    return sendFile(request, reply.headers({ ...headers, 'cache-control': cacheControl }), file);
  });
}

/** With the security headers of pages. */
export function sendFile(
  { headers }: Pick<FastifyRequest, 'headers'>,
  reply: FastifyReply,
  { bytes, type, etag }: PageFile,
): FastifyReply {
  void reply.header('etag', etag).type(type);
  return headers['if-none-match'] === etag ? reply.status(304).send() : reply.send(bytes);
}
