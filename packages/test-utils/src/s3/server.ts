/**
 * An S3 server for a test, on a loopback port with its objects in a temporary folder: s3rver, which checks signatures, plus parts
 * of the S3 API that it lacks: listing and discarding unfinished uploads and their parts, and the condition `If-None-Match: *`
 * of writes.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, request, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { answerRequest, BucketFolder } from './additions.js';

/** Answers a request, or calls `regular` for the regular answer. */
export type S3Fault = (request: IncomingMessage, response: ServerResponse, regular: () => void) => void;

export interface S3Server {
  readonly url: string;
  readonly bucket: string;
  /** Environment of processes that use it. */
  readonly environment: Readonly<Record<string, string>>;
  /** `METHOD path?query` of every request so far. */
  readonly requests: string[];
  /** Called with the next requests, one each. */
  readonly next: S3Fault[];
  /** Reads an object as text, bypassing the protocol. */
  read(key: string): string;
  write(key: string, content: string): void;
  /** Ids of the unfinished uploads. */
  uploads(): string[];
  /** Leaves uploads without parts that began long ago. */
  leaveUploads(key: string, count: number): void;
  /** Discards the unfinished uploads, as lifecycle rules do. */
  expireUploads(): void;
  close(): Promise<void>;
}

const bucket = 'winnow-test';
/** The fixed credentials of s3rver. */
const account = 'S3RVER';

export async function startS3Server(): Promise<S3Server> {
  const folder = mkdtempSync(join(tmpdir(), 'winnow-s3-'));
  const s3rver = await startS3rver(folder);
  const inBucket = new BucketFolder(join(folder, bucket));
  const requests: string[] = [];
  const next: S3Fault[] = [];
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url}`);
    const regular = (): void => answerRequest(inBucket, s3rver.forward, request, response);
    const fault = next.shift();
    if (fault === undefined) regular();
    else fault(request, response, regular);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const keys = { AWS_ACCESS_KEY_ID: account, AWS_SECRET_ACCESS_KEY: account };
  return {
    ...{ url, bucket, requests, next, environment: { AWS_ENDPOINT_URL: url, AWS_REGION: 'us-east-1', ...keys } },
    read: (key) => inBucket.read(key),
    write: (key, content) => inBucket.write(key, content),
    uploads: () => inBucket.uploads(),
    leaveUploads: (key, count) => inBucket.leaveUploads(key, count),
    expireUploads: () => inBucket.uploads().forEach((id) => inBucket.discard(id)),
    async close() {
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
      await s3rver.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

interface S3rver {
  readonly forward: RequestListener;
  stop(): Promise<void>;
}

/** s3rver rejects the signatures of paths that end in "/", which lists have. */
const program = `
const S3rver = require(process.argv[1]);
const [directory, name] = process.argv.slice(2);
const options = { silent: true, directory, configureBuckets: [{ name }] };
const strict = new S3rver(options);
const [checking, listing] = [strict, new S3rver({ ...options, allowMismatchedSignatures: true })].map((each) => each.callback());
const isList = ({ url }) => /^[/][^/]+[/]([?]|$)/.test(url);
const server = require('node:http').createServer((request, response) => (isList(request) ? listing : checking)(request, response));
strict.configureBuckets().then(() => server.listen(0, '127.0.0.1', () => process.stdout.write(server.address().port + '\\n')));`;

/** Starts s3rver in a separate process, with the modules of plain Node. */
async function startS3rver(folder: string): Promise<S3rver> {
  const path = createRequire(import.meta.url).resolve('@20minutes/s3rver');
  const child = spawn(process.execPath, ['-e', program, path, folder, bucket], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exit = once(child, 'exit');
  const [line] = (await Promise.race([once(child.stdout, 'data'), exit.then(() => [''])])) as [Buffer | string];
  const port = Number(String(line));
  if (!(port > 0)) throw new Error('s3rver did not start');
  return {
    forward(incoming, outgoing) {
      const { method, url: path, headers } = incoming;
      const forwarded = request({ host: '127.0.0.1', port, method, path, headers }, (response) => {
        outgoing.writeHead(response.statusCode ?? 500, response.headers);
        response.pipe(outgoing);
      });
      forwarded.on('error', () => outgoing.destroy());
      incoming.pipe(forwarded);
    },
    async stop() {
      child.kill('SIGKILL');
      await exit;
    },
  };
}
