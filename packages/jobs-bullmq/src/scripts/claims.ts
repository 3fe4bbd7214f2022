/** Lua scripts that add and claim jobs, and those of holders. Each runs alone on the server, all or nothing. */

/**
 * ARGV[2..]: batch, queue, reversed priority, maximum number of attempts, expiry or '', number of jobs; then of each: id, position,
 * queue or '', payload, group, and '0', or '1' with the code, message, '0' or '1', and detail of its error.
 * Returns the number of added jobs, then the positions of conflicts.
 */
export const enqueueScript: string = `
local name, queue, order, max, expires = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local b = batchNumber(name)
if not b then
  b = tostring(redis.call('INCR', P .. ':last'))
  redis.call('HSET', P .. ':names', name, b)
  redis.call('HSET', P .. ':ids', b, name)
  redis.call('ZADD', P .. ':batches', b, name)
end
local added, conflicts, i = 0, {}, 8
for _ = 1, tonumber(ARGV[7]) do
  local id, pos, own, payload, group, failed = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local code, message, hasDetail, detail = ARGV[i + 6], ARGV[i + 7], ARGV[i + 8], ARGV[i + 9]
  i = i + 10
  local known = redis.call('HGET', ofBatch(b, 'ids'), id)
  if known or redis.call('ZSCORE', ofBatch(b, 'jobs'), pos) then
    if known ~= pos then conflicts[#conflicts + 1] = pos end
  else
    local job = {
      id = id, queue = own ~= '' and own or queue, group = group, order = order, expires = expires, suspect = '0'
    }
    redis.call('HSET', ofBatch(b, 'ids'), id, pos)
    redis.call('ZADD', ofBatch(b, 'jobs'), pos, pos)
    redis.call('HSET', jobKey(b, pos), 'id', id, 'queue', job.queue, 'payload', payload, 'group', group, 'order', order,
      'max', max, 'expires', expires, 'attempts', 0, 'lapses', 0, 'suspect', '0', 'progress', 0)
    if failed == '1' then
      redis.call('HSET', jobKey(b, pos), 'ended', at)
      setError(b, pos, code, message, hasDetail == '1' and detail or nil)
      setState(b, pos, job, 'failed')
    else
      setState(b, pos, job, 'waiting')
      enterWaiting(b, pos, job, now)
    end
    added = added + 1
  end
end
local reply = { added }
for _, pos in ipairs(conflicts) do reply[#reply + 1] = pos end
return reply
`;

/**
 * ARGV[2..]: code and message of lapsed jobs, worker, lease in milliseconds, limit, '1' if nothing else runs, prefix of the
 * tokens, number of queues ('' for all), queues. Returns of each job: batch, id, position, queue, payload,
 * attempt, '1' for a suspect, token. Sent again with the same prefix, because its reply was lost, it returns the same jobs.
 */
export const claimScript: string = `
sweep(ARGV[2], ARGV[3])
local worker, leaseMs, limit, alone, prefix = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1', ARGV[8]
local claimed = {}
local function add(b, job)
  local name = redis.call('HGET', P .. ':ids', b)
  for _, field in ipairs({ name, job.id, job.pos, job.queue, job.payload, job.attempts, job.suspect, job.token }) do
    claimed[#claimed + 1] = field
  end
end
for number = 1, limit do
  local member = redis.call('HGET', P .. ':tokens', prefix .. number)
  if member then
    local b, pos = split(member)
    local job = read(b, pos)
    job.pos = pos
    add(b, job)
  end
end
if #claimed > 0 then return claimed end
local queues = {}
if ARGV[9] == '' then queues = redis.call('ZRANGE', P .. ':queues', 0, -1)
else for i = 1, tonumber(ARGV[9]) do queues[i] = ARGV[9 + i] end end
local found, next = {}, P .. ':next'
for _, queue in ipairs(queues) do
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', ofQueue('d', queue), '-inf', at)) do
    local b, pos = split(member)
    redis.call('ZREM', ofQueue('d', queue), member)
    redis.call('ZADD', ofQueue('w', queue), 0, place(b, pos, read(b, pos)))
  end
  for _, member in ipairs(redis.call('ZRANGE', ofQueue('w', queue), 0, limit - 1)) do
    redis.call('ZADD', next, 0, member)
  end
end
for number, member in ipairs(redis.call('ZRANGE', next, 0, limit - 1)) do
  local b, suspect = tostring(tonumber(string.sub(member, 18, 29))), string.sub(member, 30, 30)
  if suspect == '1' and not (number == 1 and alone) then break end
  local pos = string.match(string.sub(member, -16), '^0*(%d+)$')
  local job = read(b, pos)
  leaveWaiting(b, pos, job)
  job.pos, job.worker, job.token, job.attempts = pos, worker, prefix .. number, tonumber(job.attempts) + 1
  redis.call('HSET', jobKey(b, pos), 'attempts', job.attempts, 'token', job.token, 'worker', worker, 'started', at,
    'progress', 0)
  setState(b, pos, job, 'running')
  enterRunning(b, pos, job, now + leaseMs)
  add(b, job)
  if suspect == '1' then break end
end
redis.call('DEL', next)
return claimed
`;

/**
 * What the holder of a job does. ARGV[2..]: batch, position, token, then the change: 'heartbeat' lease progress, 'complete' result,
 * 'fail' '1' for another attempt, time until it, code, message, '0' or '1', detail, or 'release'.
 */
export const holderScript: string = `
local pos, token, change = ARGV[3], ARGV[4], ARGV[5]
local b = batchNumber(ARGV[2])
if not b then return 'lost' end
local job = read(b, pos)
if job.state == 'canceled' then return 'canceled' end
if job.state ~= 'running' or job.token ~= token then return 'lost' end
local key = jobKey(b, pos)
if change == 'heartbeat' then
  redis.call('ZADD', P .. ':leases', now + tonumber(ARGV[6]), b .. ':' .. pos)
  local progress = tonumber(ARGV[7])
  if progress > tonumber(job.progress) then redis.call('HSET', key, 'progress', ARGV[7]) end
  if progress > 0 then note(b, job.id, 'progress') end
  return 'held'
end
leaveRunning(b, pos, job)
if change == 'complete' then
  redis.call('HSET', key, 'result', ARGV[6], 'progress', 1)
  redis.call('HDEL', key, 'code', 'message', 'detail')
  endJob(b, pos, job, 'completed')
elseif change == 'release' then
  redis.call('HINCRBY', key, 'attempts', -1)
  setState(b, pos, job, 'waiting')
  enterWaiting(b, pos, job, now)
else
  setError(b, pos, ARGV[8], ARGV[9], ARGV[10] == '1' and ARGV[11] or nil)
  if ARGV[6] == '1' and tonumber(job.attempts) < tonumber(job.max) then
    setState(b, pos, job, 'waiting')
    enterWaiting(b, pos, job, now + tonumber(ARGV[7]))
    return 'waiting'
  end
  endJob(b, pos, job, 'failed')
  return 'failed'
end
return 'held'
`;
