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
    find: 'const limit = concurrency - running.filter((each) => each.pool === pool).length;',
    replace: 'const limit = concurrency - running.length;',
    tests: ['test/worker.test.ts'],
  },
  {
    file: 'packages/jobs/src/worker.ts',
    find: 'if (running.some(({ job }) => job.isSuspect)) return;',
    replace: '',
    tests: ['test/worker.test.ts'],
  },
  {
    file: 'packages/jobs/src/sqlite/statements.node.ts',
    find: 'b.priority - a.priority ||',
    replace: '',
    tests: ['test/interleavings.test.ts'],
  },
  {
    file: 'apps/server/src/batches/batch-service.ts',
    find: 'if (known.has(record.id)) await jobs.remove(record.id);',
    replace: '',
    tests: ['test/batches-client.test.ts'],
  },
  {
    file: 'apps/cli/src/commands/worker/worker-report.ts',
    find: 'perSecond((known.left ?? now.left) - now.left, known)',
    replace: 'perSecond(now.left, known)',
    tests: ['src/commands/worker/worker-report.test.ts'],
  },
  {
    file: 'packages/jobs-bullmq/src/scripts/claims.ts',
    find: "if suspect == '1' and not (number == 1 and alone) then break end",
    replace: '',
    tests: ['test/redis.test.ts'],
  },
  {
    file: 'packages/jobs-bullmq/src/scripts/claims.ts',
    find: "if job.state ~= 'running' or job.token ~= token then return 'lost' end",
    replace: "if job.state ~= 'running' then return 'lost' end",
    tests: ['test/redis.test.ts'],
  },
  {
    file: 'packages/jobs-bullmq/src/scripts/library.ts',
    find: 'lapses >= 2 or attempts + 1 >= tonumber(job.max)',
    replace: 'lapses >= 2',
    tests: ['test/redis.test.ts'],
  },
  {
    file: 'packages/jobs-bullmq/src/scripts/library.ts',
    find: "redis.call('ZREM', ofQueue('d', job.queue), b .. ':' .. pos)",
    replace: '',
    tests: ['test/differences.test.ts'],
  },
  {
    file: 'packages/jobs/src/blobs/folder-blobs.node.ts',
    find: 'sha256 = checksum.end(path, options.sha256);',
    replace: 'sha256 = checksum.end(path, undefined);',
    tests: ['test/blobs.test.ts'],
  },
  {
    file: 'apps/server/src/models/slots.ts',
    find: 'const next = waiting.find(({ isPatient }) => !isPatient) ?? waiting[0];',
    replace: 'const next = waiting[0];',
    tests: ['src/models/slots.test.ts'],
  },
  {
    file: 'apps/server/src/batches/prefix-gate.ts',
    find: 'return numComputing >= minHashes && numComputing > numComputed ?',
    replace: 'return numComputing > minHashes && numComputing >= 99 + numComputed ?',
    tests: ['src/batches/prefix-gate.test.ts'],
  },
  {
    file: 'apps/server/src/batches/split-lines.ts',
    find: 'else parts.length = 0;',
    replace: '',
    tests: ['src/batches/split-lines.test.ts'],
  },
  {
    file: 'apps/server/src/http/internal-calls.ts',
    find: "caller.signal?.addEventListener('abort', disconnect);",
    replace: '',
    tests: ['test/batch-lines.test.ts'],
  },
];
