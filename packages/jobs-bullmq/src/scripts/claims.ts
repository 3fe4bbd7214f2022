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
    setState(b, pos, job, failed == '1' and 'failed' or 'waiting', 'id', id, 'queue', job.queue, 'payload', payload,
      'group', group, 'order', order, 'max', max, 'expires', expires, 'attempts', 0, 'lapses', 0, 'suspect', '0',
      'progress', 0)
    if failed == '1' then
      redis.call('HSET', jobKey(b, pos), 'ended', at)
      setError(b, pos, code, message, hasDetail == '1' and detail or nil)
    else enterWaiting(b, pos, job, now) end
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
local claimed, names = {}, {}
local function add(b, job)
  names[b] = names[b] or redis.call('HGET', P .. ':ids', b)
  local payload = redis.call('HGET', jobKey(b, job.pos), 'payload')
  for _, field in ipairs({ names[b], job.id, job.pos, job.queue, payload, job.attempts, job.suspect, job.token }) do
    claimed[#claimed + 1] = field
  end
end
local tokens = {}
for number = 1, limit do tokens[number] = prefix .. number end
for first = 1, limit, 1000 do
  for _, member in ipairs(redis.call('HMGET', P .. ':tokens', unpack(tokens, first, math.min(first + 999, limit)))) do
    if member then
      local b, pos = split(member)
      local job = read(b, pos)
      job.pos = pos
      add(b, job)
    end
  end
end
if #claimed > 0 then return claimed end
local queues = {}
if ARGV[9] == '' then queues = redis.call('ZRANGE', P .. ':queues', 0, -1)
else for i = 1, tonumber(ARGV[9]) do queues[i] = ARGV[9 + i] end end
local found, numFound, sorted, next = {}, 0, {}, P .. ':next'
for _, queue in ipairs(queues) do
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', ofQueue('d', queue), '-inf', at)) do
    local b, pos = split(member)
    redis.call('ZREM', ofQueue('d', queue), member)
    redis.call('ZADD', ofQueue('w', queue), 0, place(b, pos, read(b, pos)))
  end
  local members = redis.call('ZRANGE', ofQueue('w', queue), 0, limit - 1)
  if #members > 0 then
    numFound = numFound + 1
    found[numFound], sorted = members, members
  end
end
if numFound > 1 then
  for _, members in ipairs(found) do
    for _, member in ipairs(members) do redis.call('ZADD', next, 0, member) end
  end
  sorted = redis.call('ZRANGE', next, 0, limit - 1)
  redis.call('DEL', next)
end
for number, member in ipairs(sorted) do
  local b, suspect = tostring(tonumber(string.sub(member, 18, 29))), string.sub(member, 30, 30)
  if suspect == '1' and not (number == 1 and alone) then break end
  local pos = string.match(string.sub(member, -16), '^0*(%d+)$')
  local job = read(b, pos)
  leaveWaiting(b, pos, job)
  job.pos, job.worker, job.token, job.attempts = pos, worker, prefix .. number, tonumber(job.attempts) + 1
  setState(b, pos, job, 'running', 'attempts', job.attempts, 'token', job.token, 'worker', worker, 'started', at,
    'progress', 0)
  enterRunning(b, pos, job, now + leaseMs)
  add(b, job)
  if suspect == '1' then break end
end
return claimed
`;

/**
 * What holders of jobs do. ARGV[2]: number of changes; then of each ten values: batch, position, token, what it is, and what that
 * needs: 'heartbeat' lease progress, 'complete' result, 'fail' '1' for another attempt, time until it, code, message, '0' or '1',
 * detail, or 'release'. Returns a state of each.
 */
export const holderScript: string = `
local function change(i)
  local pos, token, what = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local b = batchNumber(ARGV[i])
  if not b then return 'lost' end
  local job = read(b, pos)
  if job.state == 'canceled' then return 'canceled' end
  if job.state ~= 'running' or job.token ~= token then return 'lost' end
  if what == 'heartbeat' then
    redis.call('ZADD', P .. ':leases', now + tonumber(ARGV[i + 4]), b .. ':' .. pos)
    local progress = tonumber(ARGV[i + 5])
    if progress > tonumber(job.progress) then redis.call('HSET', jobKey(b, pos), 'progress', ARGV[i + 5]) end
    if progress > 0 then note(b, job.id, 'progress') end
  elseif what == 'complete' then
    leaveRunning(b, pos, job, 'code', 'message', 'detail')
    endJob(b, pos, job, 'completed', 'result', ARGV[i + 4], 'progress', 1)
  elseif what == 'release' then
    leaveRunning(b, pos, job)
    setState(b, pos, job, 'waiting', 'attempts', tonumber(job.attempts) - 1)
    enterWaiting(b, pos, job, now)
  else
    leaveRunning(b, pos, job)
    setError(b, pos, ARGV[i + 6], ARGV[i + 7], ARGV[i + 8] == '1' and ARGV[i + 9] or nil)
    if ARGV[i + 4] == '1' and tonumber(job.attempts) < tonumber(job.max) then
      setState(b, pos, job, 'waiting')
      enterWaiting(b, pos, job, now + tonumber(ARGV[i + 5]))
      return 'waiting'
    end
    endJob(b, pos, job, 'failed')
    return 'failed'
  end
  return 'held'
end
local states = {}
for number = 1, tonumber(ARGV[2]) do states[number] = change(10 * number - 7) end
return states
`;
