/** How routes describe their answers in the OpenAPI document. */

const errorStatuses: Readonly<Record<number, string>> = {
  400: 'The request makes no sense, or asks for what the server does not have.',
  401: 'No API key, or a wrong one.',
  404: 'No such model.',
  413: 'The body is too large.',
  415: 'The body is no JSON.',
  429: 'Too many requests wait already.',
  500: 'A failure of the server.',
  503: 'No slot became free in time, or the server is closing.',
  504: 'The request took too long.',
};

/**
 * @param schema name of the answer's schema
 * @param part of the parts of a stream, where there are any
 */
export function answers(schema: string, part?: string): Record<number, object> {
  const stream = part === undefined ? {} : { 'text/event-stream': { schema: { $ref: `${part}#` } } };
  const error = { 'application/json': { schema: { $ref: 'Error#' } } };
  const failures = Object.entries(errorStatuses).map(([status, description]) => [
    status,
    { description, content: error },
  ]);
  return {
    200: { description: 'The answer.', content: { 'application/json': { schema: { $ref: `${schema}#` } }, ...stream } },
    ...Object.fromEntries(failures),
  };
}

/** Answers of routes that only tell something. */
export function plainAnswer(schema: string): Record<number, object> {
  const { 200: ok, 401: unauthorized } = answers(schema) as { 200: object; 401: object };
  return { 200: ok, 401: unauthorized };
}
