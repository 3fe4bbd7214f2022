/** Answers of servers to range requests: status, headers and bodies. */
import { httpSource, type ByteSource } from '@winnow/bytes';
import { mutateJsonText, type JsonTree } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';

const url = 'http://model.test/a.gguf';
const maxWaitMs = 200;

interface Answer {
  readonly status?: unknown;
  readonly headers?: unknown;
  /** Bytes of the body: so many, or this text. */
  readonly body?: unknown;
}

const partial = (range: string, body: number): JsonTree => ({
  ...{ status: 206, headers: { 'content-range': range, 'content-length': String(body), etag: '"1"' }, body },
});
const examples: readonly JsonTree[] = [
  [partial('bytes 0-0/1000', 1), partial('bytes 10-19/1000', 10), partial('bytes 990-999/1000', 10)],
  [{ status: 200, headers: { 'content-length': '1000', 'accept-ranges': 'none' }, body: 1000 }],
  [
    { status: 503, headers: { 'retry-after': '0' }, body: 'busy' },
    partial('bytes 0-0/1000', 1),
    partial('bytes 10-19/1000', 10),
  ],
  [{ status: 200, headers: { 'content-type': 'text/html' }, body: '<!doctype html><html></html>' }],
];
const members: Readonly<Record<string, JsonTree>> = {
  status: 416,
  'content-range': 'bytes */18446744073709551616',
  'content-length': '-1',
  'content-encoding': 'gzip',
  'retry-after': '1e9',
  etag: 'W/"2"',
  'content-type': 'multipart/byteranges; boundary=x',
  body: 5000,
};

/** What a mutated answer still says, in terms that a `Response` accepts. */
function responseOf({ status, headers, body }: Answer): Response {
  const code =
    Number.isInteger(status) && (status as number) >= 200 && (status as number) <= 599 ? (status as number) : 200;
  const list = new Headers();
  for (const [name, value] of Object.entries((headers ?? {}) as Record<string, unknown>)) {
    try {
      list.append(name, String(value));
    } catch {
      // not a header that a client would see
    }
  }
  const isEmpty = [204, 205, 304].includes(code);
  const size = typeof body === 'number' ? Math.max(0, Math.min(body, 1 << 16)) : 0;
  const content = typeof body === 'string' ? bytesOf(body) : new Uint8Array(Math.floor(size));
  return new Response(isEmpty ? null : content, { status: code, headers: list });
}

async function readEnds(source: ByteSource): Promise<void> {
  try {
    await source.read(10, new Uint8Array(Math.max(0, Math.min(10, source.sizeBytes - 10))));
    await source.read(Math.max(0, source.sizeBytes - 10), new Uint8Array(Math.min(10, source.sizeBytes)));
  } finally {
    await source.close();
  }
}

export async function createTarget(): Promise<Target> {
  return {
    examples: examples.map((answers) => bytesOf(JSON.stringify(answers))),
    mutate: (random, input) => bytesOf(mutateJsonText(random, textOf(input), members)),
    async run(input) {
      const script = JSON.parse(textOf(input)) as unknown;
      const answers = (Array.isArray(script) ? script : []) as Answer[];
      let index = 0;
      const fetch = async (): Promise<Response> => responseOf(answers[Math.min(index++, answers.length - 1)] ?? {});
      // a server may ask to wait for half a minute
      const signal = AbortSignal.timeout(maxWaitMs);
      try {
        await readEnds(await httpSource(url, { fetch, signal, maxRetries: 2, retryDelayMs: 0 }));
      } catch (error) {
        if (error !== signal.reason) throw error;
      }
    },
  };
}
