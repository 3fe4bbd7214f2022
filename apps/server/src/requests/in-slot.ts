/** Work of a model in one of its slots, within the time of a request. */
import type { FastifyReply } from 'fastify';
import type { SlotActivity, Slots } from '../models/slots.js';
import { openScope } from './request-scope.js';
import type { ServerContext } from './server-context.js';

/** @throws {ApiError} when no slot becomes free in time, and what the task throws */
export async function inSlot<T>(
  slots: Slots,
  reply: FastifyReply,
  { limits, shutdown, isInternal }: ServerContext,
  task: (signal: AbortSignal, activity: SlotActivity) => Promise<T>,
): Promise<T> {
  const scope = openScope(reply, limits.requestTimeoutMs, shutdown);
  try {
    const lease = await slots.acquire(reply.request.id, scope.signal, isInternal(reply.request));
    try {
      return await task(scope.signal, lease.activity);
    } finally {
      lease.release();
    }
  } finally {
    scope.end();
  }
}
