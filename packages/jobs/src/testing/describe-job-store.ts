/** The conformance suite of job stores, as vitest tests. */
import { afterEach, describe } from 'vitest';
import type { JobStore } from '../job-store.js';
import { testAttempts } from './attempts.js';
import type { Bench, UseBench } from './bench.js';
import { testQueues } from './queues.js';
import { testReports } from './reports.js';

export interface DescribeJobStoreOptions {
  readonly name: string;
  /**
   * Opens a store. The suite opens one place several times, also at once, as several processes would.
   * @param place a new one is empty
   * @param now the time in milliseconds since 1970
   */
  open(place: string, now: () => number): Promise<JobStore>;
  /** Whether the store ignores `now` and has a clock of its own. Then the suite waits. Default false. */
  readonly hasOwnClock?: boolean;
  /** Whether jobs are claimed in the order of their groups even when they were not added in that order. Default true. */
  readonly sortsGroups?: boolean;
  /** Lease in milliseconds that lapses in tests. Default 1000. */
  readonly leaseMs?: number;
}

const realNow = (): number => performance.timeOrigin + performance.now();

/** Registers the suite. */
export function describeJobStore(options: DescribeJobStoreOptions): void {
  const { name, hasOwnClock = false, sortsGroups = true, leaseMs = 1000 } = options;
  describe(`job store ${name}`, () => {
    let bench: Bench | undefined;
    let opened: JobStore[] = [];

    const create = (): Bench => {
      const place = `place-${crypto.randomUUID()}`;
      let elapsedMs = 0;
      const startMs = realNow();
      const now = hasOwnClock ? realNow : () => startMs + elapsedMs;
      return {
        leaseMs,
        now,
        async open() {
          const store = await options.open(place, now);
          opened.push(store);
          return store;
        },
        async elapse(durationMs) {
          if (hasOwnClock) await new Promise((resolve) => setTimeout(resolve, durationMs));
          else elapsedMs += durationMs;
        },
      };
    };
    const use: UseBench = () => (bench ??= create());

    afterEach(async () => {
      for (const store of opened) await store.close();
      opened = [];
      bench = undefined;
    });

    testQueues(use, sortsGroups);
    testAttempts(use);
    testReports(use);
  });
}
