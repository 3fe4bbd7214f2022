/** The lifetime of a request: until its client disconnects, it times out, or the server shuts down. */
import type { FastifyReply } from 'fastify';
import { ApiError, ClientClosedError } from '../http/api-error.js';

export interface RequestScope {
  readonly signal: AbortSignal;
  /** Releases the request. May be called more than once. */
  end(): void;
}

/** @param shutdown aborted when the grace period of running requests ends */
export function openScope(reply: FastifyReply, timeoutMs: number, shutdown: AbortSignal): RequestScope {
  const controller = new AbortController();
  const { raw } = reply;
  const onClose = (): void => {
    if (!raw.writableFinished) controller.abort(new ClientClosedError());
  };
  const onShutdown = (): void => controller.abort(shutdown.reason);
  const timer = setTimeout(() => {
    const message = `The request took longer than ${timeoutMs / 1000} seconds`;
    controller.abort(new ApiError({ status: 504, message, code: 'timeout' }));
  }, timeoutMs);
  if (raw.destroyed) onClose();
  else raw.once('close', onClose);
  if (shutdown.aborted) onShutdown();
  else shutdown.addEventListener('abort', onShutdown);
  return {
    signal: controller.signal,
    end(): void {
      clearTimeout(timer);
      raw.off('close', onClose);
      shutdown.removeEventListener('abort', onShutdown);
    },
  };
}
