/** A connection to Redis with the scripts of the store. It waits for a server that is being restarted. */
import { IoError, ReleasedError } from '@winnow/tensor';
import { RedisConnection } from 'bullmq';
import { Redis } from 'ioredis';
import type { Reply, Scripts } from './script-job-store.node.js';
import { scripts, type ScriptName } from './scripts/index.js';
import { sourceOf } from './source.js';

export class ScriptConnection implements Scripts {
  readonly #source: string;
  readonly #redis: Redis;
  readonly #connection: RedisConnection;
  readonly #prefix: string;
  readonly #maxWaitMs: number;
  #isOpen = true;
  #client: Awaited<RedisConnection['client']> | undefined;
  /** The last error of the connection. */
  #lastError: unknown;

  private constructor(source: string, url: string, prefix: string, maxWaitMs: number) {
    this.#source = source;
    this.#prefix = prefix;
    this.#maxWaitMs = maxWaitMs;
    const retryStrategy = (count: number): number => Math.min(1000, 50 * 2 ** Math.min(count, 5));
    this.#redis = new Redis(url, { maxRetriesPerRequest: null, retryStrategy, lazyConnect: false });
    // ioredis throws errors without a listener
    this.#redis.on('error', (error) => (this.#lastError = error));
    this.#connection = new RedisConnection(this.#redis, { shared: true, blocking: false, skipVersionCheck: true });
    this.#connection.on('error', (error) => (this.#lastError = error));
  }

  /** @throws {IoError} when the server cannot be reached within `maxWaitMs`, or would lose jobs */
  static async open(
    url: string,
    prefix: string,
    maxWaitMs: number,
    isVolatileAllowed: boolean,
  ): Promise<ScriptConnection> {
    const source = sourceOf(url);
    const connection = new ScriptConnection(source, url, prefix, maxWaitMs);
    try {
      const client = await connection.#withinTime(connection.#connection.client);
      for (const { name, lua } of scripts) client.defineCommand(`winnow:${name}`, { numberOfKeys: 1, lua });
      const info = await connection.#withinTime(client.info());
      checkVersion(source, info);
      if (!isVolatileAllowed) checkPersistence(source, info);
      return connection;
    } catch (error) {
      await connection.close();
      throw connection.#errorOf(error);
    }
  }

  /** Redis takes any. */
  check(): void {}

  /** @throws {ReleasedError} after `close` @throws {IoError} */
  async run(name: ScriptName, ...values: readonly (string | number)[]): Promise<Reply> {
    if (!this.#isOpen) throw new ReleasedError(this.#source);
    try {
      const client = (this.#client ??= await this.#withinTime(this.#connection.client));
      return (await this.#withinTime(client.runCommand(`winnow:${name}`, [this.#prefix, ...values]))) as Reply;
    } catch (error) {
      throw this.#errorOf(error);
    }
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#connection.close(true).catch(() => {});
    this.#redis.disconnect();
  }

  /** Waits for a server that is being restarted; unanswered commands are sent again. */
  #withinTime<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        const message = `no answer within ${this.#maxWaitMs} ms`;
        reject(new IoError({ source: this.#source, message }, { cause: this.#lastError }));
      }, this.#maxWaitMs);
      timer.unref();
      void work.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  #errorOf(error: unknown): Error {
    if (error instanceof IoError || error instanceof ReleasedError) return error;
    const message = `Redis: ${error instanceof Error ? error.message : String(error)}`;
    return new IoError({ source: this.#source, message }, { cause: error });
  }
}

/** The oldest server version that has the commands of the scripts. */
const minVersion = [6, 2] as const;

const fieldOf = (info: string, name: string): string | undefined =>
  new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1];

function checkVersion(source: string, info: string): void {
  const version = fieldOf(info, 'redis_version') ?? 'unknown';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major > minVersion[0] || (major === minVersion[0] && minor >= minVersion[1])) return;
  throw new IoError({ source, message: `expected Redis ${minVersion.join('.')} or later, got ${version}` });
}

/** @throws {IoError} for a server that loses jobs when it ends or is full */
function checkPersistence(source: string, info: string): void {
  if (fieldOf(info, 'aof_enabled') === '0') {
    throw new IoError({
      source,
      message: "expected 'appendonly yes', got 'no': jobs would be lost when the server ends",
    });
  }
  const policy = fieldOf(info, 'maxmemory_policy') ?? 'noeviction';
  if (policy !== 'noeviction') {
    const message = `expected the maxmemory-policy 'noeviction', got '${policy}': jobs would be lost when the server is full`;
    throw new IoError({ source, message });
  }
}
