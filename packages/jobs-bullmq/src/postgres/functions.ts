/**
 * The functions of the store. They take the arguments of the Lua scripts of the same names, and return what those return, as JSON.
 */
import type { ScriptName } from '../scripts/index.js';
import { createFunction, libraryOf, tables } from './tables.js';

const enqueueBody = `DECLARE
  now double precision := enter(args);
  added integer;
  conflicts text[];
  b bigint;
BEGIN
  INSERT INTO batches (name) VALUES (args[2]) ON CONFLICT DO NOTHING;
  SELECT id INTO b FROM batches WHERE name = args[2];
  WITH new AS (
    INSERT INTO jobs (batch, custom_id, position, queue, payload, job_group, place_order, max_attempts, expires_at, state,
        error_code, error_message, error_detail, ended_at)
      SELECT b, id, pos, queue, payload, job_group, args[4]::bigint, args[5]::integer, nullif(args[6], '')::double precision,
        CASE WHEN failed THEN 'failed' ELSE 'waiting' END,
        CASE WHEN failed THEN error[1] END, CASE WHEN failed THEN error[2] END,
        CASE WHEN failed AND error[3] = '1' THEN error[4] END, CASE WHEN failed THEN now END
      FROM given(args) ORDER BY number ON CONFLICT DO NOTHING RETURNING custom_id, state
  ), noted AS (
    INSERT INTO events (batch, custom_id, event, at) SELECT b, custom_id, state, now FROM new RETURNING 1
  ) SELECT count(*) INTO added FROM noted;
  SELECT array_agg(pos::text ORDER BY number) INTO conflicts FROM given(args)
    LEFT JOIN jobs ON jobs.batch = b AND jobs.custom_id = given.id WHERE jobs.position IS DISTINCT FROM given.pos;
  RETURN array_to_json(array_prepend(added::text, conflicts));
END`;

/** Called again with the same token prefix after its reply was lost, it returns the same jobs. */
const claimBody = `DECLARE
  now double precision := enter(args);
  tokens text[] := ARRAY(SELECT args[8] || series FROM generate_series(1, args[6]::integer) AS series);
  names text[];
  candidate record;
  number integer := 0;
BEGIN
  PERFORM sweep(now, args[2], args[3]);
  IF args[9] <> '' THEN names := args[10:9 + args[9]::integer];
  ELSE
    WITH RECURSIVE queues (name) AS (
      SELECT min(queue) FROM jobs WHERE state = 'waiting'
      UNION ALL
      SELECT (SELECT min(queue) FROM jobs WHERE state = 'waiting' AND queue > name) FROM queues WHERE name IS NOT NULL
    ) SELECT array_agg(name) INTO names FROM queues WHERE name IS NOT NULL;
  END IF;
  IF EXISTS (SELECT FROM jobs WHERE token = ANY (tokens)) THEN names := '{}'; END IF;
  FOR candidate IN
    SELECT next.* FROM (SELECT DISTINCT unnest(names) AS name) AS wanted, LATERAL (
      SELECT id, suspect, place_order, batch, job_group, position FROM jobs
        WHERE state = 'waiting' AND queue = wanted.name COLLATE "C" AND available_at <= now
        ORDER BY place_order, batch, suspect, job_group, position LIMIT args[6]::integer
    ) AS next ORDER BY place_order, batch, suspect, job_group, position LIMIT args[6]::integer
  LOOP
    number := number + 1;
    EXIT WHEN candidate.suspect AND NOT (number = 1 AND args[7] = '1');
    WITH job AS (
      UPDATE jobs SET state = 'running', attempts = attempts + 1, token = tokens[number], worker = args[4],
          lease_until = now + args[5]::double precision, started_at = now, progress = 0
        WHERE id = candidate.id RETURNING *
    ) INSERT INTO events (batch, custom_id, event, at) SELECT batch, custom_id, state, now FROM job;
    EXIT WHEN candidate.suspect;
  END LOOP;
  RETURN (
    SELECT coalesce(json_agg(value ORDER BY length(token), token, ordinal), '[]')
      FROM jobs JOIN batches ON batches.id = jobs.batch,
        unnest(ARRAY[name, custom_id, position::text, queue, payload, attempts::text,
          CASE WHEN suspect THEN '1' ELSE '0' END, token]) WITH ORDINALITY AS field (value, ordinal)
      WHERE token = ANY (tokens)
  );
END`;

/** The ten values of each change begin at `i`. */
const holderBody = `DECLARE
  now double precision := enter(args);
  job jobs%ROWTYPE;
  entered text;
  reply text;
  replies text[] := '{}';
  i integer;
BEGIN
  FOR number IN 1..args[2]::integer LOOP
    i := 10 * number - 7;
    reply := 'held';
    entered := CASE args[i + 3] WHEN 'complete' THEN 'completed' WHEN 'release' THEN 'waiting' END;
    SELECT * INTO job FROM jobs
      WHERE batch = (SELECT id FROM batches WHERE name = args[i]) AND position = args[i + 1]::bigint;
    IF job.state = 'canceled' THEN
      replies := replies || 'canceled'::text;
      CONTINUE;
    END IF;
    IF job.id IS NULL OR job.state <> 'running' OR job.token <> args[i + 2] THEN
      replies := replies || 'lost'::text;
      CONTINUE;
    END IF;
    IF args[i + 3] = 'heartbeat' THEN
      UPDATE jobs SET lease_until = now + args[i + 4]::double precision,
        progress = greatest(progress, args[i + 5]::double precision) WHERE id = job.id;
      IF args[i + 5]::double precision > 0 THEN entered := 'progress'; END IF;
    ELSIF args[i + 3] = 'complete' THEN
      UPDATE jobs SET state = entered, result = args[i + 4], progress = 1, ended_at = now, token = NULL, lease_until = NULL,
        error_code = NULL, error_message = NULL, error_detail = NULL WHERE id = job.id;
    ELSIF args[i + 3] = 'release' THEN
      UPDATE jobs SET state = entered, attempts = attempts - 1, token = NULL, lease_until = NULL WHERE id = job.id;
    ELSE
      entered := CASE WHEN args[i + 4] = '1' AND job.attempts < job.max_attempts THEN 'waiting' ELSE 'failed' END;
      reply := entered;
      UPDATE jobs SET state = entered, token = NULL, lease_until = NULL,
        available_at = CASE WHEN entered = 'waiting' THEN now + args[i + 5]::double precision ELSE available_at END,
        ended_at = CASE WHEN entered = 'failed' THEN now END,
        error_code = args[i + 6], error_message = args[i + 7],
        error_detail = CASE WHEN args[i + 8] = '1' THEN args[i + 9] END
        WHERE id = job.id;
    END IF;
    IF entered IS NOT NULL THEN
      INSERT INTO events (batch, custom_id, event, at) VALUES (job.batch, job.custom_id, entered, now);
    END IF;
    replies := replies || reply;
  END LOOP;
  RETURN array_to_json(replies);
END`;

const cancelBody = `DECLARE
  now double precision := enter(args);
  canceled integer;
BEGIN
  PERFORM sweep(now, args[2], args[3]);
  WITH moved AS (
    UPDATE jobs SET state = 'canceled', ended_at = now, token = NULL, lease_until = NULL
      WHERE batch = (SELECT id FROM batches WHERE name = args[4]) AND state IN ('waiting', 'running')
      RETURNING batch, custom_id, state
  ), noted AS (
    INSERT INTO events (batch, custom_id, event, at) SELECT batch, custom_id, state, now FROM moved RETURNING 1
  ) SELECT count(*) INTO canceled FROM noted;
  RETURN to_json(canceled);
END`;

const removeBody = `DECLARE
  removed integer;
BEGIN
  PERFORM enter(args);
  DELETE FROM batches WHERE name = args[4];
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN to_json(removed);
END`;

const listBody = `DECLARE
  entries jsonb;
  last bigint;
BEGIN
  PERFORM sweep(enter(args), args[2], args[3]);
  SELECT max(position), jsonb_agg(jsonb_build_array(position::text, jsonb_build_array(custom_id, state, attempts, progress,
      worker, result, error_code, error_message, error_detail, started_at, ended_at)) ORDER BY position)
    INTO last, entries
    FROM (
      SELECT * FROM jobs WHERE batch = (SELECT id FROM batches WHERE name = args[4]) AND position > args[5]::bigint
        AND (args[8] = '' OR state = ANY (string_to_array(args[8], ','))) ORDER BY position LIMIT args[6]::integer
    ) AS page;
  IF entries IS NULL OR jsonb_array_length(entries) < args[6]::integer THEN last := NULL; END IF;
  RETURN (jsonb_build_array(coalesce(last::text, '')) || coalesce(entries, '[]'))::json;
END`;

const countsBody = `BEGIN
  PERFORM sweep(enter(args), args[2], args[3]);
  RETURN (
    SELECT coalesce(json_agg(value ORDER BY state, number), '[]') FROM (
      SELECT state, count(*)::text AS count FROM jobs
        WHERE batch = (SELECT id FROM batches WHERE name = args[4]) GROUP BY state
    ) AS counts, unnest(ARRAY[state, count]) WITH ORDINALITY AS pair (value, number)
  );
END`;

const queuesBody = `BEGIN
  PERFORM sweep(enter(args), args[2], args[3]);
  RETURN (
    WITH waiting AS (SELECT queue, count(*) AS count FROM jobs WHERE state = 'waiting' GROUP BY queue),
    workers AS (SELECT queue, worker, count(*) AS count FROM jobs WHERE state = 'running' GROUP BY queue, worker),
    running AS (
      SELECT queue, json_agg(value ORDER BY worker, number) AS fields
        FROM workers, unnest(ARRAY[worker, count::text]) WITH ORDINALITY AS pair (value, number) GROUP BY queue
    )
    SELECT coalesce(json_agg(json_build_array(queue, coalesce(count, 0), coalesce(fields, '[]')) ORDER BY queue), '[]')
      FROM waiting FULL JOIN running USING (queue)
  );
END`;

const batchesBody = `BEGIN
  RETURN (SELECT coalesce(json_agg(name ORDER BY id), '[]') FROM batches);
END`;

const eventsBody = `DECLARE
  last bigint;
  entries jsonb;
BEGIN
  IF args[4] = '' THEN
    PERFORM enter(args);
    RETURN (SELECT json_build_array(coalesce(max(sequence), 0)::text) FROM events);
  END IF;
  SELECT max(sequence), jsonb_agg(jsonb_build_array(sequence, name, custom_id, event, at) ORDER BY sequence)
      FILTER (WHERE args[6] = '' OR name = args[6])
    INTO last, entries
    FROM (SELECT * FROM events WHERE sequence > args[4]::bigint ORDER BY sequence LIMIT args[5]::integer) AS page
    JOIN batches ON batches.id = page.batch;
  RETURN (jsonb_build_array(coalesce(last::text, args[4])) || coalesce(entries, '[]'))::json;
END`;

const bodies: Readonly<Record<ScriptName, string>> = {
  enqueue: enqueueBody,
  claim: claimBody,
  holder: holderBody,
  cancel: cancelBody,
  remove: removeBody,
  list: listBody,
  counts: countsBody,
  queues: queuesBody,
  batches: batchesBody,
  events: eventsBody,
};

/** Statements that create everything in a new schema, which the connection looks in. */
export function definitionsOf(schema: string): string {
  const functions = Object.entries(bodies).map(([name, body]) =>
    createFunction(schema, `${name}(args text[])`, 'json', body),
  );
  return [tables, libraryOf(schema), ...functions].join('\n');
}
