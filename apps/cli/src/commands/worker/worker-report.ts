/** What a worker reports while it works. */
import type { JobStore } from '@winnow/jobs';
import { durationText } from '../../terminal/progress.js';
import type { LineFigures } from '../batch/figures.js';

/** What is left in the queues of the worker, which other workers may share. */
export interface Depth {
  readonly waiting: number;
  readonly running: number;
}

export interface WorkerProgress extends Depth {
  readonly answered: number;
  readonly failed: number;
  /** Of this worker, since the last reports. */
  readonly linesPerSecond: number;
  /** Until the queues are empty, at the rate of all workers in the last reports. Undefined while they do not shrink. */
  readonly secondsLeft?: number;
}

interface Sample {
  readonly ms: number;
  readonly numDone: number;
  /** Undefined before the first report. */
  readonly left: number | undefined;
}

/** Number of reports that a rate is computed from. */
const maxSamples = 6;

export class WorkerReport {
  readonly #figures: LineFigures;
  readonly #now: () => number;
  #samples: Sample[];
  #last = '';
  numFailed = 0;

  /** @param now milliseconds since any origin */
  constructor(figures: LineFigures, now: () => number = () => performance.now()) {
    this.#figures = figures;
    this.#now = now;
    this.#samples = [{ ms: now(), numDone: 0, left: undefined }];
  }

  /** Undefined when nothing has changed since the last report. */
  next(depth: Depth): WorkerProgress | undefined {
    const progress = this.#progress(depth);
    const { answered, failed, waiting, running } = progress;
    const state = JSON.stringify([answered, failed, waiting, running]);
    if (state === this.#last) return undefined;
    this.#last = state;
    return progress;
  }

  #progress({ waiting, running }: Depth): WorkerProgress {
    const { numAnswered: answered } = this.#figures;
    const failed = this.numFailed;
    const now = { ms: this.#now(), numDone: answered + failed, left: waiting + running };
    const [first = now] = this.#samples;
    this.#samples = [...this.#samples, now].slice(-maxSamples);
    const perSecond = (amount: number, { ms }: Sample): number => (1000 * amount) / Math.max(1, now.ms - ms);
    const linesPerSecond = Number(perSecond(now.numDone - first.numDone, first).toPrecision(3));
    const known = this.#samples.find(({ left }) => left !== undefined) ?? now;
    const shrinks = perSecond((known.left ?? now.left) - now.left, known);
    const left = shrinks > 0 ? { secondsLeft: Math.ceil(now.left / shrinks) } : {};
    return { answered, failed, waiting, running, linesPerSecond, ...left };
  }
}

export function progressLine(progress: WorkerProgress): string {
  const { answered, failed, waiting, running, linesPerSecond, secondsLeft } = progress;
  const failures = failed === 0 ? '' : `, ${failed} failed`;
  const left = secondsLeft === undefined ? '' : `, ${durationText(secondsLeft)} left`;
  return `${answered} lines answered${failures}, ${linesPerSecond} lines/s; ${waiting} wait and ${running} run in the queue${left}`;
}

/** What waits and runs in some queues. */
export async function depthOf(store: JobStore, queues: ReadonlySet<string>): Promise<Depth> {
  let [waiting, running] = [0, 0];
  for (const info of await store.queues()) {
    if (!queues.has(info.queue)) continue;
    waiting += info.waiting;
    running += info.running;
  }
  return { waiting, running };
}
