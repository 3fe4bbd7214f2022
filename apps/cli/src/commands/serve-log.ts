/** The log of `winnow serve` on stderr: requests, and models that are loaded and unloaded. */
import type { ModelEvent, RequestRecord } from '@winnow/server';
import { WinnowError } from '@winnow/tensor';
import { printable } from '../errors/printable.js';
import { formatBytes } from '../terminal/format.js';
import type { CommandContext } from './command-host.js';

export interface LogFlags {
  readonly logFormat?: 'text' | 'json';
  readonly quiet?: boolean;
}

/** The request log on stderr. */
export function requestLog(
  { logFormat, quiet }: LogFlags,
  { io, warn }: CommandContext,
): (record: RequestRecord) => void {
  if (logFormat !== 'json') return (record) => warn(requestLine(record));
  return ({ endedAt: time, requestId, method, path, status, durationMs }) => {
    if (quiet === true) return;
    const fields = { time, request_id: requestId, method, path, status, duration_ms: Math.round(durationMs) };
    io.stderr.write(`${JSON.stringify(fields)}\n`);
  };
}

function requestLine({ method, path, status, durationMs, requestId }: RequestRecord): string {
  return `${method} ${path} ${status} ${(durationMs / 1000).toFixed(3)} s ${requestId}`;
}

/** Internal errors. A typed error says what it found; any other is a defect. */
export function errorLog({ io }: CommandContext): (error: unknown) => void {
  return (error) => {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    const shown = WinnowError.isInstance(error) ? error.message : text;
    io.stderr.write(`winnow: ${printable(shown)}\n`);
  };
}

/** Logs what happens to models on demand. A failure is an error, which --quiet does not hide. */
export function modelLog({ logFormat, quiet }: LogFlags, { io, warn }: CommandContext): (event: ModelEvent) => void {
  if (logFormat !== 'json') {
    return (event) => {
      if (event.event === 'failed') io.stderr.write(`winnow: ${printable(modelLine(event))}\n`);
      else warn(modelLine(event));
    };
  }
  return (event) => {
    if (quiet === true && event.event !== 'failed') return;
    const { event: what, model, kind } = event;
    const fields = {
      ...{ time: new Date().toISOString(), event: `model_${what}`, model, kind },
      ...('durationMs' in event ? { duration_ms: Math.round(event.durationMs) } : {}),
      ...('memoryBytes' in event ? { memory_bytes: event.memoryBytes } : {}),
      ...('reason' in event ? { reason: event.reason } : {}),
      ...('error' in event ? { error: messageOf(event.error) } : {}),
    };
    io.stderr.write(`${JSON.stringify(fields)}\n`);
  };
}

function modelLine(event: ModelEvent): string {
  const { model } = event;
  switch (event.event) {
    case 'loading':
      return `loading ${model}`;
    case 'loaded':
      return `loaded ${model} in ${(event.durationMs / 1000).toFixed(3)} s: ${formatBytes(event.memoryBytes)}`;
    case 'failed':
      return `could not load ${model}: ${messageOf(event.error)}`;
    case 'canceled':
      return `stopped loading ${model}: nobody waits for it`;
    case 'unloaded':
      return `unloaded ${model} (${reasons[event.reason]}): ${formatBytes(event.memoryBytes)}`;
  }
}

const reasons = { memory: 'for another model', idle: 'idle', shutdown: 'shutting down' } as const;

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
