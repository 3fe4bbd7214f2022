/** The results of a batch in OpenAI's format, streamed from a job store in the order of the input. */
import { createHash } from 'node:crypto';
import type { JobInfo, JobState, JobStore } from '@winnow/jobs';

export type ResultKind = 'output' | 'errors';

/** States of the jobs of each file. Canceled lines are in none, as at OpenAI. */
const statesOf: Readonly<Record<ResultKind, readonly JobState[]>> = {
  output: ['completed'],
  errors: ['failed', 'expired'],
};

const jobsPerRead = 200;

/** Lines of the output or of the error file, each with its line feed. */
export async function* batchResults(
  store: JobStore,
  batchId: string,
  kind: ResultKind,
): AsyncGenerator<string, void, void> {
  for (let after = -1; ;) {
    const jobs = await store.list(batchId, { states: statesOf[kind], after, limit: jobsPerRead });
    for (const job of jobs) yield `${resultLine(job)}\n`;
    const last = jobs.at(-1);
    if (last === undefined) return;
    after = last.index;
  }
}

function resultLine(job: JobInfo): string {
  const { result, error } = job;
  if (result !== undefined) return lineOf(job, job.customId, result, null);
  if (job.state === 'expired') {
    const message = 'This request could not be executed before the completion window expired.';
    return lineOf(job, job.customId, 'null', { code: 'batch_expired', message });
  }
  const { code = 'internal_error', message = '', detail } = error ?? {};
  const known = detail === undefined ? undefined : (JSON.parse(detail) as { status_code?: number; customId?: string });
  if (known?.status_code !== undefined) return lineOf(job, job.customId, detail as string, null);
  // a line that was rejected has an id of ours in the store
  return lineOf(job, known === undefined ? job.customId : (known.customId ?? null), 'null', { code, message });
}

/** @param response JSON */
function lineOf({ batchId, index }: JobInfo, customId: string | null, response: string, error: object | null): string {
  const id = `batch_req_${createHash('sha256').update(`${batchId} ${index}`).digest('hex').slice(0, 24)}`;
  const ids = `"id":${JSON.stringify(id)},"custom_id":${JSON.stringify(customId)}`;
  return `{${ids},"response":${response},"error":${JSON.stringify(error)}}`;
}
