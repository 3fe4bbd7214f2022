/**
 * The tables of the store in a schema of PostgreSQL, and what its functions have in common. Times are milliseconds since 1970.
 *
 * - The order of what can be claimed from a queue is that of the index `place`: by priority (already reversed), then batches in the
 *   order in which they began, suspects after the others of their batch, then groups. Texts are compared by their bytes.
 * - Partial indexes hold only what claims look for: waiting jobs, and leases, tokens and expiry times of jobs that have one.
 * - Functions that change anything take the lock of the schema, so each runs alone, and events have the order of their commits.
 */
export const tables: string = `
CREATE TABLE batches (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE jobs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  batch bigint NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
  custom_id text COLLATE "C" NOT NULL,
  position bigint NOT NULL,
  queue text COLLATE "C" NOT NULL,
  payload text NOT NULL,
  job_group text COLLATE "C" NOT NULL,
  place_order bigint NOT NULL,
  max_attempts integer NOT NULL,
  expires_at double precision,
  state text NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  lapses integer NOT NULL DEFAULT 0,
  suspect boolean NOT NULL DEFAULT false,
  available_at double precision NOT NULL DEFAULT 0,
  lease_until double precision,
  token text,
  worker text COLLATE "C",
  progress double precision NOT NULL DEFAULT 0,
  result text,
  error_code text,
  error_message text,
  error_detail text,
  started_at double precision,
  ended_at double precision,
  UNIQUE (batch, custom_id),
  UNIQUE (batch, position)
);
CREATE INDEX place ON jobs (queue, place_order, batch, suspect, job_group, position) WHERE state = 'waiting';
CREATE INDEX running ON jobs (queue, worker) WHERE state = 'running';
CREATE INDEX leases ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX tokens ON jobs (token) WHERE token IS NOT NULL;
CREATE INDEX expiries ON jobs (expires_at) WHERE state = 'waiting' AND expires_at IS NOT NULL;
CREATE INDEX states ON jobs (batch, state);
CREATE TABLE events (
  sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  batch bigint NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
  custom_id text NOT NULL,
  event text NOT NULL,
  at double precision NOT NULL
);
CREATE INDEX events_of_batch ON events (batch);
`;

/** The head of each function, which fixes its schema whatever the `search_path` of the connection. */
export function createFunction(schema: string, signature: string, returns: string, body: string): string {
  return `CREATE FUNCTION ${signature} RETURNS ${returns} LANGUAGE plpgsql SET search_path = "${schema}" AS $body$ ${body} $body$;`;
}

/** `enter` begins every function: it takes the lock, and returns the time of `args[1]`; empty: the clock of the server. */
export function libraryOf(schema: string): string {
  return [
    createFunction(
      schema,
      'enter(args text[])',
      'double precision',
      `BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('winnow ${schema}', 0));
  RETURN CASE WHEN args[1] = '' THEN extract(epoch FROM clock_timestamp())::double precision * 1000
    ELSE args[1]::double precision END;
END`,
    ),
    // Moves jobs whose lease has lapsed, or that have expired.
    createFunction(
      schema,
      'sweep(at double precision, code text, message text)',
      'void',
      `BEGIN
  WITH moved AS (
    UPDATE jobs SET state = 'expired', ended_at = at
      WHERE state = 'waiting' AND expires_at <= at RETURNING batch, custom_id, state
  ) INSERT INTO events (batch, custom_id, event, at) SELECT batch, custom_id, state, sweep.at FROM moved;
  WITH moved AS (
    UPDATE jobs SET state = 'failed', ended_at = at, token = NULL, lease_until = NULL,
        error_code = code, error_message = message, error_detail = NULL
      WHERE state = 'running' AND lease_until <= at AND attempts >= max_attempts RETURNING batch, custom_id, state
  ) INSERT INTO events (batch, custom_id, event, at) SELECT batch, custom_id, state, sweep.at FROM moved;
  WITH moved AS (
    UPDATE jobs SET state = CASE WHEN expires_at <= at THEN 'expired' ELSE 'waiting' END,
        ended_at = CASE WHEN expires_at <= at THEN at END, token = NULL, lease_until = NULL, lapses = lapses + 1,
        suspect = lapses + 1 >= 2 OR attempts + 1 >= max_attempts
      WHERE state = 'running' AND lease_until <= at RETURNING batch, custom_id, state
  ) INSERT INTO events (batch, custom_id, event, at) SELECT batch, custom_id, state, sweep.at FROM moved;
END`,
    ),
    // The jobs of the arguments of `enqueue`, ten fields each.
    `CREATE FUNCTION given(args text[]) RETURNS TABLE (number bigint, id text, pos bigint, queue text, payload text,
      job_group text, failed boolean, error text[]) LANGUAGE sql SET search_path = "${schema}" AS $body$
  SELECT number, f[1], f[2]::bigint, coalesce(nullif(f[3], ''), args[3]), f[4], f[5], f[6] = '1', f[7:10] FROM (
    SELECT (ord - 8) / 10 AS number, array_agg(value ORDER BY ord) AS f
      FROM unnest(args) WITH ORDINALITY AS field (value, ord) WHERE ord >= 8 GROUP BY 1
  ) AS fields
$body$;`,
  ].join('\n');
}
