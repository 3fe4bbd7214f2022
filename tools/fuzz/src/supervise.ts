/** Runs a target in workers within bounds of time and memory, and continues after inputs that exceed them. */
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
  readonly bounds?: Bounds;
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

export async function fuzz(options: FuzzOptions): Promise<FuzzResult> {
  const findings: Finding[] = [];
  const endMs = performance.now() + options.maxMs;
  let firstIndex = 0;
  let numOutcomes = 0;
  while (firstIndex < options.maxInputs && performance.now() < endMs && findings.length < maxFindings) {
    const part = await runWorker({
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

/** Ends with the inputs, or with one that exceeds the bounds. */
function runWorker(options: FuzzOptions & Pick<WorkerSetup, 'firstIndex'>): Promise<FuzzResult> {
  const { bounds = defaultBounds, onOutcome, ...rest } = options;
  const state = createState();
  const worker = new Worker(new URL('worker.ts', import.meta.url), {
    execArgv: [...sourceArguments],
    workerData: { ...rest, state } satisfies WorkerSetup,
    resourceLimits: { maxOldGenerationSizeMb: bounds.memoryBytes / 2 ** 20 },
  });
  const findings: Finding[] = [];
  return new Promise((resolve) => {
    const watch = new Watch(state, bounds, (reason) => end(reason));
    const end = (reason?: string): void => {
      watch.stop();
      const running = currentInput(state);
      const input = running ?? { index: rest.firstIndex, input: new Uint8Array(0) };
      if (reason !== undefined) findings.push({ ...input, reason });
      void worker.terminate();
      resolve({ numInputs: input.index + 1 - rest.firstIndex, numOutcomes: 1, findings });
    };
    worker.on('error', (error) => end(`the worker failed: ${String((error as Error).stack ?? error)}`));
    worker.on('message', (report: Report) => {
      if (report.kind === 'finding') findings.push(report);
      else if (report.kind === 'outcome') onOutcome?.(report.input);
      else {
        watch.stop();
        void worker.terminate();
        resolve({ numInputs: report.numInputs, numOutcomes: report.numOutcomes, findings });
      }
    });
  });
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
