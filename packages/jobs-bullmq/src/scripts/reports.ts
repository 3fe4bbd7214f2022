/** Lua scripts that read, cancel and remove. The first arguments after the time are code and message of lapsed jobs. */

/** ARGV[4]: batch. Returns the number of canceled jobs. */
export const cancelScript: string = `
sweep(ARGV[2], ARGV[3])
local b = batchNumber(ARGV[4])
if not b then return 0 end
local canceled = 0
for _, pos in ipairs(redis.call('ZRANGE', ofBatch(b, 'jobs'), 0, -1)) do
  local job = read(b, pos)
  if job.state == 'waiting' or job.state == 'running' then
    if job.state == 'waiting' then leaveWaiting(b, pos, job) else leaveRunning(b, pos, job) end
    endJob(b, pos, job, 'canceled')
    canceled = canceled + 1
  end
end
return canceled
`;

/** ARGV[4]: batch. Returns 1 if there was one. */
export const removeScript: string = `
local b = batchNumber(ARGV[4])
if not b then return 0 end
local queues = {}
for _, pos in ipairs(redis.call('ZRANGE', ofBatch(b, 'jobs'), 0, -1)) do
  local job = read(b, pos)
  if job.state == 'waiting' then leaveWaiting(b, pos, job) end
  if job.state == 'running' then leaveRunning(b, pos, job) end
  redis.call('DEL', jobKey(b, pos))
  queues[job.queue] = true
end
for queue in pairs(queues) do forgetIfEmpty(queue) end
local entries = redis.call('LRANGE', ofBatch(b, 'events'), 0, -1)
for i, sequence in ipairs(entries) do entries[i] = sequence .. '-0' end
inParts('XDEL', P .. ':events', entries)
redis.call('DEL', ofBatch(b, 'jobs'), ofBatch(b, 'ids'), ofBatch(b, 'n'), ofBatch(b, 'events'))
redis.call('HDEL', P .. ':names', ARGV[4])
redis.call('HDEL', P .. ':ids', b)
redis.call('ZREM', P .. ':batches', ARGV[4])
return 1
`;

/**
 * Jobs of a batch by position. ARGV[4..]: batch, position after which they begin, limit, maximum number of jobs to look at, states
 * between commas or ''. Returns the last position that it looked at, or '' at the end, then the position and all fields of each job.
 */
export const listScript: string = `
sweep(ARGV[2], ARGV[3])
local b, limit, states = batchNumber(ARGV[4]), tonumber(ARGV[6]), ARGV[8]
if not b then return { '' } end
local positions = redis.call('ZRANGEBYSCORE', ofBatch(b, 'jobs'), '(' .. ARGV[5], '+inf', 'LIMIT', 0, tonumber(ARGV[7]))
local jobs, last = {}, ''
for _, pos in ipairs(positions) do
  if #jobs == limit then return { last, unpack(jobs) } end
  last = pos
  local state = redis.call('HGET', jobKey(b, pos), 'state')
  if states == '' or string.find(states, ',' .. state .. ',', 1, true) then
    jobs[#jobs + 1] = { pos, redis.call('HMGET', jobKey(b, pos), 'id', 'state', 'attempts', 'progress', 'worker', 'result',
      'code', 'message', 'detail', 'started', 'ended') }
  end
end
if #positions < tonumber(ARGV[7]) then last = '' end
return { last, unpack(jobs) }
`;

/** ARGV[4]: batch. Returns states and numbers. */
export const countsScript: string = `
sweep(ARGV[2], ARGV[3])
local b = batchNumber(ARGV[4])
return b and redis.call('HGETALL', ofBatch(b, 'n')) or {}
`;

/** Returns of each queue: name, number of waiting jobs, workers and the numbers of their running jobs. */
export const queuesScript: string = `
sweep(ARGV[2], ARGV[3])
local found = {}
for _, queue in ipairs(redis.call('ZRANGE', P .. ':queues', 0, -1)) do
  local waiting = redis.call('ZCARD', ofQueue('w', queue)) + redis.call('ZCARD', ofQueue('d', queue))
  found[#found + 1] = { queue, waiting, redis.call('HGETALL', ofQueue('r', queue)) }
end
return found
`;

export const batchesScript: string = `return redis.call('ZRANGE', P .. ':batches', 0, -1)`;

/**
 * ARGV[4..]: sequence number after which events begin, '' for now; maximum number to look at; batch or ''. Returns the
 * last number that it looked at, then of each event: number, batch, id, event, time.
 */
export const eventsScript: string = `
local newest = redis.call('GET', P .. ':sequence') or '0'
if ARGV[4] == '' then return { newest } end
local only = ARGV[6] ~= '' and (batchNumber(ARGV[6]) or 'none')
local entries = redis.call('XRANGE', P .. ':events', '(' .. ARGV[4] .. '-0', '+', 'COUNT', tonumber(ARGV[5]))
local found, last = {}, ARGV[4]
for _, entry in ipairs(entries) do
  last = string.match(entry[1], '^%d+')
  local b = entry[2][2]
  if not only or only == b then
    found[#found + 1] = { last, redis.call('HGET', P .. ':ids', b), entry[2][4], entry[2][6], entry[2][8] }
  end
end
return { last, unpack(found) }
`;
