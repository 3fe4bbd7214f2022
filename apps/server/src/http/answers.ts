/** Response descriptions of routes in the OpenAPI document. */

const errorStatuses: Readonly<Record<number, string>> = {
  400: 'The request is invalid or uses unsupported features.',
  401: 'Missing or incorrect API key.',
  404: 'No such model.',
  413: 'The body is too large.',
  415: 'The body is not JSON.',
  429: 'Too many requests are waiting.',
  500: 'Internal error.',
  503: 'No slot became free in time, or the server is closing.',
  504: 'The request took too long.',
};

/**
 * Responses of a route.
 * @param schema name of the response schema
 * @param part schema name of stream chunks, if the route streams
 */
export type Answers = (schema: string, part?: string) => Record<number, object>;

/** @param error name of the protocol's error schema @param streamType media type of its streams */
export function answersOf(error: string, streamType = 'text/event-stream'): Answers {
  return (schema, part) => describedAnswers(schema, part, error, streamType);
}

/** Those of OpenAI's API. */
export const answers: Answers = answersOf('Error');

function describedAnswers(
  schema: string,
  part: string | undefined,
  errorSchema: string,
  streamType: string,
): Record<number, object> {
  const stream = part === undefined ? {} : { [streamType]: { schema: { $ref: `${part}#` } } };
  const error = { 'application/json': { schema: { $ref: `${errorSchema}#` } } };
  const failures = Object.entries(errorStatuses).map(([status, description]) => [
    status,
    { description, content: error },
  ]);
  return {
    200: {
      description: 'The response.',
      content: { 'application/json': { schema: { $ref: `${schema}#` } }, ...stream },
    },
    ...Object.fromEntries(failures),
  };
}

/** Responses of status routes. */
export function plainAnswer(schema: string): Record<number, object> {
  const { 200: ok, 401: unauthorized } = answers(schema) as { 200: object; 401: object };
  return { 200: ok, 401: unauthorized };
}
