/**
 * What the Lua scripts of the store have in common. All keys begin with KEYS[1], whose braces keep them in one slot of a cluster:
 *
 * - `:names`   hash, id of a batch to its number, from 1 in the order in which they began; `:ids` is the inverse
 * - `:b:B:jobs` sorted set of the positions of batch B; `:b:B:ids` hash, custom ids to positions; `:b:B:n` hash, states to
 *   numbers of jobs; `:b:B:events` list of its events
 * - `:j:B:POSITION` hash, a job
 * - `:w:QUEUE` sorted set of what can be claimed from a queue, by place (see `place`); `:d:QUEUE` what waits for its next
 *   attempt, by time; `:r:QUEUE` hash, workers to the numbers of their running jobs; `:queues` the queues that have any of these
 * - `:tokens` hash, the tokens of running jobs to the jobs
 * - `:leases`, `:expiries` sorted sets of running jobs by the end of their lease, and of waiting jobs by their expiry
 * - `:events` stream, `:sequence` number of the newest event
 */

/** ARGV[1] is the time in milliseconds; empty: the clock of the server, which all machines have in common. */
export const library: string = `
local P = KEYS[1]
local now = tonumber(ARGV[1])
if now == nil then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
end
local at = string.format('%.3f', now)

local function jobKey(b, pos) return P .. ':j:' .. b .. ':' .. pos end
local function ofBatch(b, what) return P .. ':b:' .. b .. ':' .. what end
local function ofQueue(kind, queue) return P .. ':' .. kind .. ':' .. queue end
local function split(member) return string.match(member, '^(%d+):(%d+)$') end

local fields = { 'id', 'queue', 'group', 'order', 'max', 'expires', 'attempts', 'lapses', 'suspect', 'progress', 'state',
  'token', 'worker' }

-- the fields of a job by name, without its payload, result and error
local function read(b, pos)
  local job = {}
  for i, value in ipairs(redis.call('HMGET', jobKey(b, pos), unpack(fields))) do job[fields[i]] = value or nil end
  return job
end

-- Sorts by priority (already reversed), batch, suspects after others, group, position. Digits have fixed widths.
local function place(b, pos, job)
  local padded = string.rep('0', 16 - #pos) .. pos
  return job.order .. string.format('%012d', tonumber(b)) .. job.suspect .. job.group .. '\\0' .. padded
end

-- what a script has noted and counted, which is written at its end
local notes, counts = {}, {}

local function note(b, id, event) notes[#notes + 1] = { b, id, event } end

local function count(b, state, change)
  counts[b] = counts[b] or {}
  counts[b][state] = (counts[b][state] or 0) + change
end

-- calls a command with a list, in parts that fit the stack
local function inParts(command, key, list)
  for i = 1, #list, 1000 do redis.call(command, key, unpack(list, i, math.min(i + 999, #list))) end
end

local function flush()
  local last = #notes > 0 and redis.call('INCRBY', P .. ':sequence', #notes) or 0
  local sequences = {}
  for i, each in ipairs(notes) do
    local b, sequence = each[1], string.format('%d', last - #notes + i)
    redis.call('XADD', P .. ':events', sequence .. '-0', 'b', b, 'id', each[2], 'event', each[3], 'at', at)
    sequences[b] = sequences[b] or {}
    table.insert(sequences[b], sequence)
  end
  for b, list in pairs(sequences) do inParts('RPUSH', ofBatch(b, 'events'), list) end
  for b, changes in pairs(counts) do
    for state, change in pairs(changes) do
      if change ~= 0 then redis.call('HINCRBY', ofBatch(b, 'n'), state, change) end
    end
  end
  notes, counts = {}, {}
end

-- further arguments: fields that change with it, and their values
local function setState(b, pos, job, state, ...)
  if job.state then count(b, job.state, -1) end
  count(b, state, 1)
  redis.call('HSET', jobKey(b, pos), 'state', state, ...)
  job.state = state
  note(b, job.id, state)
end

local known = {}

local function enterWaiting(b, pos, job, availableAt)
  if not known[job.queue] then redis.call('ZADD', P .. ':queues', 0, job.queue) end
  known[job.queue] = true
  if availableAt > now then redis.call('ZADD', ofQueue('d', job.queue), availableAt, b .. ':' .. pos)
  else redis.call('ZADD', ofQueue('w', job.queue), 0, place(b, pos, job)) end
  if job.expires ~= '' then redis.call('ZADD', P .. ':expiries', job.expires, b .. ':' .. pos) end
end

local function leaveWaiting(b, pos, job)
  if redis.call('ZREM', ofQueue('w', job.queue), place(b, pos, job)) == 0 then
    redis.call('ZREM', ofQueue('d', job.queue), b .. ':' .. pos)
  end
  if job.expires ~= '' then redis.call('ZREM', P .. ':expiries', b .. ':' .. pos) end
end

local function enterRunning(b, pos, job, leaseUntil)
  redis.call('ZADD', P .. ':leases', leaseUntil, b .. ':' .. pos)
  redis.call('HSET', P .. ':tokens', job.token, b .. ':' .. pos)
  redis.call('HINCRBY', ofQueue('r', job.queue), job.worker, 1)
end

-- further arguments: fields that the job loses with its token
local function leaveRunning(b, pos, job, ...)
  redis.call('ZREM', P .. ':leases', b .. ':' .. pos)
  if redis.call('HINCRBY', ofQueue('r', job.queue), job.worker, -1) == 0 then
    redis.call('HDEL', ofQueue('r', job.queue), job.worker)
  end
  redis.call('HDEL', P .. ':tokens', job.token)
  redis.call('HDEL', jobKey(b, pos), 'token', ...)
end

local function forgetIfEmpty(queue)
  local left = redis.call('EXISTS', ofQueue('w', queue), ofQueue('d', queue), ofQueue('r', queue))
  if left == 0 then
    redis.call('ZREM', P .. ':queues', queue)
    known[queue] = nil
  end
end

local function endJob(b, pos, job, state, ...)
  setState(b, pos, job, state, 'ended', at, ...)
  forgetIfEmpty(job.queue)
end

local function setError(b, pos, code, message, detail)
  redis.call('HSET', jobKey(b, pos), 'code', code, 'message', message)
  if detail then redis.call('HSET', jobKey(b, pos), 'detail', detail)
  else redis.call('HDEL', jobKey(b, pos), 'detail') end
end

local function isExpired(job) return job.expires ~= '' and tonumber(job.expires) <= now end

-- Moves jobs whose lease has lapsed, or that have expired.
local function sweep(lapsedCode, lapsedMessage)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', P .. ':expiries', '-inf', at)) do
    local b, pos = split(member)
    local job = read(b, pos)
    leaveWaiting(b, pos, job)
    endJob(b, pos, job, 'expired')
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', P .. ':leases', '-inf', at)) do
    local b, pos = split(member)
    local job = read(b, pos)
    leaveRunning(b, pos, job)
    local attempts, lapses = tonumber(job.attempts), tonumber(job.lapses) + 1
    if attempts >= tonumber(job.max) then
      setError(b, pos, lapsedCode, lapsedMessage)
      endJob(b, pos, job, 'failed')
    else
      job.suspect = (lapses >= 2 or attempts + 1 >= tonumber(job.max)) and '1' or '0'
      local changed = { 'lapses', lapses, 'suspect', job.suspect }
      if isExpired(job) then endJob(b, pos, job, 'expired', unpack(changed))
      else
        setState(b, pos, job, 'waiting', unpack(changed))
        enterWaiting(b, pos, job, now)
      end
    end
  end
  flush()
end

local function batchNumber(name) return redis.call('HGET', P .. ':names', name) end
`;
