/** Parses JSON bodies, and removes fields without effect: null, and unsupported OpenAI parameters with their neutral value. */
import { isRecord, jsonDepth, maxJsonDepth } from '@winnow/tensor';
import { isUtf8 } from 'node:buffer';
import type { FastifyInstance } from 'fastify';
import { ApiError } from './api-error.js';

/** Rejects bodies that are not UTF-8 (400), instead of replacing bytes, and those that are nested too deeply. */
export function addJsonParser(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    const bytes = body as Buffer;
    if (!isUtf8(bytes)) {
      done(new ApiError({ status: 400, message: 'The body is not valid UTF-8', code: 'invalid_request' }));
    } else if (jsonDepth(bytes) > maxJsonDepth) {
      const message = `The body has more than ${maxJsonDepth} levels of brackets`;
      done(new ApiError({ status: 400, message, code: 'invalid_request' }));
    } else {
      void parse(request, bytes.toString('utf8'), done);
    }
  });
}

/** OpenAI parameters that this server does not support, with their neutral value (undefined: none). */
export const unsupportedParameters: Readonly<Record<string, unknown>> = {
  audio: undefined,
  background: false,
  best_of: 1,
  function_call: undefined,
  functions: [],
  modalities: ['text'],
  moderation: undefined,
  prediction: undefined,
  store: false,
  suffix: '',
  verbosity: undefined,
  web_search_options: undefined,
};

export function isKnownParameter(name: string): boolean {
  return Object.hasOwn(unsupportedParameters, name);
}

/**
 * Copies a request body without fields that have no effect; a value that is not an object is returned unchanged.
 * @param neutral unsupported parameters with the value that they may have
 */
export function withoutNoOpFields(body: unknown, neutral: Readonly<Record<string, unknown>>): unknown {
  if (!isRecord(body)) return body;
  const isNoOp = (name: string, value: unknown): boolean =>
    neutral[name] !== undefined &&
    Object.hasOwn(neutral, name) &&
    JSON.stringify(value) === JSON.stringify(neutral[name]);
  const entries = Object.entries(body).filter(([name, value]) => value !== null && !isNoOp(name, value));
  return Object.fromEntries(entries);
}
