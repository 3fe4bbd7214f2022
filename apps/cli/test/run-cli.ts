/** Runs the program in-process with captured streams. */
import { once } from 'node:events';
import { PassThrough, Readable } from 'node:stream';
import { main } from '../src/cli.js';
import type { CliIo, Download, EngineApi, HubCacheApi, RouterApi, ServerApi } from '../src/terminal/io.js';

export interface CliRun {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliSetup {
  /** Text of a piped stdin; undefined: a terminal without input. */
  readonly stdin?: string | undefined;
  readonly env?: CliIo['env'];
  readonly download?: Download;
  readonly hubCache?: HubCacheApi;
  readonly server?: ServerApi;
  readonly router?: RouterApi;
  readonly isStderrTerminal?: boolean;
  readonly isStdoutTerminal?: boolean;
  /** Width of the terminal. */
  readonly columns?: number;
}

/** A host whose Ctrl-C is a function. */
export class TestHost {
  readonly io: CliIo;
  readonly stdin: PassThrough;
  exitNowCode: number | undefined;
  readonly #listeners = new Set<() => void>();
  readonly #terminateListeners = new Set<() => void>();
  readonly #exitListeners = new Set<() => void>();
  readonly #stdout: PassThrough;
  readonly #stderr: PassThrough;
  #stdoutText = '';
  #shownEnd = 0;

  constructor(engine: EngineApi, setup: CliSetup = {}) {
    const { stdin, env = {}, isStderrTerminal = false, isStdoutTerminal = false } = setup;
    this.stdin = new PassThrough();
    if (stdin !== undefined) Readable.from([Buffer.from(stdin)]).pipe(this.stdin);
    this.#stdout = new PassThrough({ highWaterMark: 2 ** 26 });
    this.#stderr = new PassThrough({ highWaterMark: 2 ** 26 });
    this.#stdout.setEncoding('utf8').on('data', (text: string) => {
      this.#stdoutText += text;
    });
    this.io = {
      stdin: Object.assign(this.stdin, { isTTY: stdin === undefined }),
      stdout: Object.assign(this.#stdout, {
        isTTY: isStdoutTerminal,
        ...(setup.columns === undefined ? {} : { columns: setup.columns }),
      }),
      stderr: Object.assign(this.#stderr, { isTTY: isStderrTerminal }),
      env,
      engine: () => Promise.resolve(engine),
      hubCache: () =>
        setup.hubCache ? Promise.resolve(setup.hubCache) : Promise.reject(new Error('no hub in this test')),
      download: setup.download ?? (() => Promise.reject(new Error('no download in this test'))),
      onInterrupt: (listener) => {
        this.#listeners.add(listener);
        return () => this.#listeners.delete(listener);
      },
      server: () =>
        setup.server ? Promise.resolve(setup.server) : Promise.reject(new Error('no server in this test')),
      router: () =>
        setup.router ? Promise.resolve(setup.router) : Promise.reject(new Error('no router in this test')),
      onTerminate: (listener) => {
        this.#terminateListeners.add(listener);
        return () => this.#terminateListeners.delete(listener);
      },
      onExit: (listener) => {
        this.#exitListeners.add(listener);
        return () => this.#exitListeners.delete(listener);
      },
      exitNow: (code) => {
        this.exitNowCode = code;
      },
      randomSeed: () => 4711,
      measurePeaks: async (numThreads = 2) => ({
        numThreads,
        bytesPerSecond: 4e9,
        f32OpsPerSecond: 8e9,
        int8OpsPerSecond: 16e9,
      }),
      version: '1.2.3',
    };
  }

  get numListeners(): number {
    return this.#listeners.size + this.#exitListeners.size;
  }

  interrupt(): void {
    for (const listener of this.#listeners) listener();
  }

  terminate(): void {
    for (const listener of this.#terminateListeners) listener();
  }

  async run(argv: readonly string[]): Promise<CliRun> {
    const code = await main(argv, this.io);
    return { code, stdout: this.#stdoutText, stderr: (this.#stderr.read() as Buffer | null)?.toString('utf8') ?? '' };
  }

  /** Types a line, and waits for what the terminal shows. */
  enter(line: string, ...texts: readonly string[]): Promise<void> {
    this.stdin.write(`${line}\r`);
    return this.untilShown(...texts);
  }

  /** The text on stdout so far. */
  get shown(): string {
    return this.#stdoutText;
  }

  /** Resolves when stdout contains these texts in order, after those of earlier calls. */
  async untilShown(...texts: readonly string[]): Promise<void> {
    for (const text of texts) {
      while (!this.#stdoutText.includes(text, this.#shownEnd)) await once(this.#stdout, 'data');
      this.#shownEnd = this.#stdoutText.indexOf(text, this.#shownEnd) + text.length;
    }
  }
}

export function runCli(engine: EngineApi, argv: readonly string[], setup: CliSetup = {}): Promise<CliRun> {
  return new TestHost(engine, setup).run(argv);
}
