/** Defects in job stores and workers. */
import type { Mutant } from '../mutant.ts';

export const jobsMutants: readonly Mutant[] = [
  {
    file: 'packages/jobs/src/sqlite/statements.node.ts',
    find: "AND custom_id = ? AND state = 'running' AND token = ?",
    replace: "AND custom_id = ? AND state = 'running' AND ? != ''",
    tests: ['test/sqlite.test.ts', 'test/interleavings.test.ts'],
  },
  {
    file: 'packages/jobs/src/sqlite/statements.node.ts',
    find: 'ORDER BY priority DESC, batch, suspect, grouping, position LIMIT ?',
    replace: 'ORDER BY batch, suspect, grouping, position LIMIT ?',
    tests: ['test/sqlite.test.ts', 'test/interleavings.test.ts'],
  },
  {
    file: 'packages/jobs/src/sqlite/sqlite-job-store.node.ts',
    find: 'next.slice(0, firstSuspect === 0 && alone ? 1 : firstSuspect)',
    replace: 'next',
    tests: ['test/sqlite.test.ts', 'test/interleavings.test.ts'],
  },
  {
    file: 'packages/jobs/src/worker.ts',
    find: "if (state === 'canceled' || state === 'lost') controller.abort",
    replace: "if (state === 'lost') controller.abort",
    tests: ['test/worker.test.ts'],
  },
  {
    file: 'packages/jobs/src/worker.ts',
    find: 'const limit = isAlone ? 0 : concurrency - this.#running.size;',
    replace: 'const limit = concurrency;',
    tests: ['test/worker.test.ts'],
  },
  {
    file: 'packages/jobs/src/blobs/folder-blobs.node.ts',
    find: 'sha256 = checksum.end(path, options.sha256);',
    replace: 'sha256 = checksum.end(path, undefined);',
    tests: ['test/blobs.test.ts'],
  },
];
