/** What a request may say without meaning anything: null, and parameters of OpenAI at the value that asks for nothing. */

/** Parameters of OpenAI's API that this server does not have, with the value that asks for nothing (undefined: none). */
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

/** A copy of a request's body without fields that ask for nothing; what is no object stays as it is. */
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
