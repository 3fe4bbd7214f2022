/** Parses JSON bodies, and removes fields without effect: null, and unsupported OpenAI parameters with their neutral value. */
import { isRecord } from '@winnow/tensor';
import { isUtf8 } from 'node:buffer';
import type { FastifyInstance } from 'fastify';
import { ApiError } from './api-error.js';

/** Deeper bodies are rejected before anything recurses into them; schemas of real clients have less than 50 levels. */
const maxBodyDepth = 512;

const quote = 0x22;
const backslash = 0x5c;
const openingBracket = 0x5b;
const closingBracket = 0x5d;
const openingBrace = 0x7b;
const closingBrace = 0x7d;

/** Rejects bodies that are not UTF-8 (400), instead of replacing bytes, and those that are nested too deeply. */
export function addJsonParser(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    const bytes = body as Buffer;
    if (!isUtf8(bytes)) {
      done(new ApiError({ status: 400, message: 'The body is not valid UTF-8', code: 'invalid_request' }));
    } else if (depthOf(bytes) > maxBodyDepth) {
      const message = `The body has more than ${maxBodyDepth} levels of brackets`;
      done(new ApiError({ status: 400, message, code: 'invalid_request' }));
    } else {
      void parse(request, bytes.toString('utf8'), done);
    }
  });
}

/** Maximum number of brackets that are open at once, outside strings. The text need not be valid JSON. */
function depthOf(json: Uint8Array): number {
  let depth = 0;
  let maxDepth = 0;
  let isString = false;
  for (let index = 0; index < json.length; index++) {
    const byte = json[index];
    if (isString && byte === backslash) index++;
    else if (byte === quote) isString = !isString;
    else if (isString) continue;
    else if (byte === openingBracket || byte === openingBrace) maxDepth = Math.max(maxDepth, ++depth);
    else if (byte === closingBracket || byte === closingBrace) depth--;
  }
  return maxDepth;
}

/** OpenAI parameters that this server does not support, with their neutral value (undefined: none). */
const unsupportedParameters: Readonly<Record<string, unknown>> = {
  audio: undefined,
  background: false,
  best_of: 1,
  echo: false,
  function_call: undefined,
  functions: [],
  logit_bias: {},
  modalities: ['text'],
  moderation: undefined,
  n: 1,
  prediction: undefined,
  reasoning_effort: undefined,
  store: false,
  suffix: '',
  verbosity: undefined,
  web_search_options: undefined,
};

export function isKnownParameter(name: string): boolean {
  return Object.hasOwn(unsupportedParameters, name);
}

/** Copies a request body without fields that have no effect; a value that is not an object is returned unchanged. */
export function withoutNoOpFields(body: unknown): unknown {
  if (!isRecord(body)) return body;
  const entries = Object.entries(body).filter(([name, value]) => value !== null && !isNoOp(name, value));
  return Object.fromEntries(entries);
}

function isNoOp(name: string, value: unknown): boolean {
  if (!isKnownParameter(name)) return false;
  const neutral = unsupportedParameters[name];
  return neutral !== undefined && JSON.stringify(value) === JSON.stringify(neutral);
}
