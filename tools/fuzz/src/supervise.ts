/** Runs targets in workers within bounds of time and memory, and continues after inputs that exceed them. */
import { Worker } from 'node:worker_threads';
import { sourceArguments } from '@winnow/test-utils';
import { createState, currentInput, type Finding, type Report, type WorkerSetup } from './protocol.ts';

export interface Bounds {
  /** Maximum time of one input. */
  readonly inputMs: number;
  /** Maximum heap of the worker, and maximum growth of the process. */
  readonly memoryBytes: number;
}

export const defaultBounds: Bounds = { inputMs: 10_000, memoryBytes: 1.5 * 2 ** 30 };

export interface FuzzOptions extends Pick<WorkerSetup, 'module' | 'corpus' | 'seed' | 'maxInputs' | 'maxMs'> {
  readonly onOutcome?: (input: Uint8Array) => void;
}

export interface FuzzResult {
  readonly numInputs: number;
  readonly numOutcomes: number;
  readonly findings: readonly Finding[];
}

/** After so many findings a target is broken, and more inputs say nothing new. */
const maxFindings = 20;
/** How often the bounds are checked. */
const checkMs = 100;

/** Runs one target after the other. Their worker is kept while none exceeds its bounds: loading the sources takes seconds. */
export class Supervisor {
  readonly #bounds: Bounds;
  #worker: Worker | undefined;

  constructor(bounds: Bounds = defaultBounds) {
    this.#bounds = bounds;
  }

  async fuzz(options: FuzzOptions): Promise<FuzzResult> {
    const findings: Finding[] = [];
    const endMs = performance.now() + options.maxMs;
    let firstIndex = 0;
    let numOutcomes = 0;
    while (firstIndex < options.maxInputs && performance.now() < endMs && findings.length < maxFindings) {
      const part = await this.#runWorker({
        ...options,
        firstIndex,
        maxInputs: options.maxInputs - firstIndex,
        maxMs: endMs - performance.now(),
      });
      firstIndex += part.numInputs;
      numOutcomes += part.numOutcomes;
      findings.push(...part.findings);
    }
    return { numInputs: firstIndex, numOutcomes, findings };
  }

  async close(): Promise<void> {
    const worker = this.#worker;
    this.#worker = undefined;
    await worker?.terminate();
  }

  #startWorker(): Worker {
    return new Worker(new URL('worker.ts', import.meta.url), {
      execArgv: [...sourceArguments],
      resourceLimits: { maxOldGenerationSizeMb: this.#bounds.memoryBytes / 2 ** 20 },
    });
  }

  /** Ends with the inputs, or with one that exceeds the bounds. */
  #runWorker({ onOutcome, ...rest }: FuzzOptions & Pick<WorkerSetup, 'firstIndex'>): Promise<FuzzResult> {
    const state = createState();
    const worker = (this.#worker ??= this.#startWorker());
    const findings: Finding[] = [];
    return new Promise((resolve) => {
      const stop = (): void => {
        watch.stop();
        worker.removeAllListeners('error').removeAllListeners('message');
      };
      const end = (reason: string): void => {
        stop();
        const { index, input } = currentInput(state) ?? { index: rest.firstIndex, input: new Uint8Array(0) };
        findings.push({ index, input, reason });
        void this.close();
        resolve({ numInputs: index + 1 - rest.firstIndex, numOutcomes: 1, findings });
      };
      const watch = new Watch(state, this.#bounds, end);
      worker.on('error', (error) => end(`the worker failed: ${String((error as Error).stack ?? error)}`));
      worker.on('message', (report: Report) => {
        if (report.kind === 'finding') findings.push(report);
        else if (report.kind === 'outcome') onOutcome?.(report.input);
        else {
          stop();
          resolve({ numInputs: report.numInputs, numOutcomes: report.numOutcomes, findings });
        }
      });
      worker.postMessage({ ...rest, state } satisfies WorkerSetup);
    });
  }
}

/** Notices inputs that take too long or too much memory. */
class Watch {
  readonly #timer: NodeJS.Timeout;
  #index = -1;
  #sinceMs = performance.now();

  constructor(state: SharedArrayBuffer, { inputMs, memoryBytes }: Bounds, onExceeded: (reason: string) => void) {
    const startBytes = process.memoryUsage.rss();
    this.#timer = setInterval(() => {
      const index = currentInput(state)?.index ?? -1;
      if (index !== this.#index) {
        this.#index = index;
        this.#sinceMs = performance.now();
      }
      const grownBytes = process.memoryUsage.rss() - startBytes;
      // before its first input a worker loads the sources
      const allowedMs = index < 0 ? 12 * inputMs : inputMs;
      if (grownBytes > memoryBytes) onExceeded(`more than ${Math.round(memoryBytes / 2 ** 20)} MiB of memory`);
      else if (performance.now() - this.#sinceMs > allowedMs) onExceeded(`more than ${allowedMs / 1000} s`);
    }, checkMs);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
