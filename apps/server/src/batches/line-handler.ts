/** Answers lines of batches with the handlers of a server. */
import { JobFailure, type FailOptions, type JobHandler } from '@winnow/jobs';
import type { InternalRequest, InternalResponse } from '../http/internal-calls.js';
import { groupOf, type LinePayload } from './batch-line.js';
import { PrefixGate } from './prefix-gate.js';

/** Maximum number of attempts of a line that fails because of the server. */
const maxServerErrors = 3;

export interface LineHandlerOptions {
  /** Whether lines that begin alike wait for the first of them. Default true. */
  readonly prefixGrouping?: boolean;
}

/**
 * Requests that the server rejects fail at once; those for which it has no room are retried.
 * @param call answers a request, as `call` of a server
 */
export function batchLineHandler(
  call: (request: InternalRequest) => Promise<InternalResponse>,
  { prefixGrouping = true }: LineHandlerOptions = {},
): JobHandler {
  /** By owner: the lines of different owners do not share computed beginnings. */
  const gates = new Map<string | undefined, PrefixGate>();
  return async ({ payload, attempt }, { signal }) => {
    const { url, body, owner } = JSON.parse(payload) as LinePayload;
    const gate = gates.get(owner) ?? new PrefixGate();
    gates.set(owner, gate);
    const onPrompt = await gate.enter(prefixGrouping ? groupOf(url, body) : '');
    let answer: InternalResponse;
    try {
      answer = await call({
        path: url,
        body: JSON.stringify(body),
        signal,
        onPrompt,
        ...(owner === undefined ? {} : { owner }),
      });
    } finally {
      onPrompt();
    }
    const { status, requestId, body: text } = answer;
    const response = `{"status_code":${status},"request_id":${JSON.stringify(requestId)},"body":${text}}`;
    if (status === 200) return response;
    const error = (JSON.parse(text) as { error?: { code?: string | null; message?: string } }).error;
    const message = error?.message ?? `status ${status}`;
    throw new JobFailure(
      { code: error?.code ?? `http_${status}`, message, detail: response },
      retryOf(status, attempt),
    );
  };
}

function retryOf(status: number, attempt: number): FailOptions {
  if (status === 429 || status === 503) return {};
  return { retry: status >= 500 && attempt < maxServerErrors };
}
