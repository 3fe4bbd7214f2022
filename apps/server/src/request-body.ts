/** Fields of a request without effect: null, and unsupported OpenAI parameters with their neutral value. */

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
export function meaningfulBody(body: unknown): unknown {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return body;
  const entries = Object.entries(body).filter(([name, value]) => value !== null && !asksForNothing(name, value));
  return Object.fromEntries(entries);
}

function asksForNothing(name: string, value: unknown): boolean {
  if (!isKnownParameter(name)) return false;
  const neutral = unsupportedParameters[name];
  return neutral !== undefined && JSON.stringify(value) === JSON.stringify(neutral);
}
