-- node_state: the life of a node, the twin of mesh/states/node.py; a test walks both.
-- A life is a table of what the record keeps. `seen_ms` 0: the node is off the lists, and the record has no last_seen_ms.

local LIFE_HEARD = {healthy = '+', unhealthy = '-'}
local LIFE_STAYS = {offline = true, draining = true}
local LIFE_RESUMES = {[''] = 'registering', ['+'] = 'ready', ['-'] = 'degraded'}

local function read_life(node)
  local record = redis.call('HMGET', node, 'status', 'reason', 'registered_ms', 'last_seen_ms', 'heard', 'detached_ms',
    'drain_until_ms')
  return {status = record[1] or 'offline', reason = record[2] or '', registered_ms = tonumber(record[3]) or 0,
    seen_ms = tonumber(record[4]) or 0, heard = record[5] or '', detached_ms = tonumber(record[6]) or 0,
    drain_until_ms = tonumber(record[7]) or 0}
end

local function write_life(node, life)
  redis.call('HSET', node, 'status', life.status, 'reason', life.reason, 'registered_ms', life.registered_ms,
    'last_seen_ms', life.seen_ms, 'heard', life.heard, 'detached_ms', life.detached_ms,
    'drain_until_ms', life.drain_until_ms)
  if life.seen_ms == 0 then redis.call('HDEL', node, 'last_seen_ms') end
end

-- When the passing of time can change the node next.
local function life_due_ms(life, limits)
  if life.detached_ms > 0 then return life.detached_ms + limits.reconnect_grace_ms end
  return life.seen_ms + (LIFE_STAYS[life.status] and limits.record_ttl_ms or limits.heartbeat_timeout_ms)
end

local function life_turn(life, status, reason)
  life.status, life.reason = status, reason
end

local function life_fails(heard, limits)
  local _, in_window = string.gsub(string.sub(heard, -limits.failure_window), '%-', '')
  local in_row = limits.failures_in_row_max
  return in_window >= limits.failures_max or string.sub(heard, -in_row) == string.rep('-', in_row)
end

local function life_heard(life, sign, time_ms, limits)
  if life.detached_ms > 0 then return end
  local kept = math.max(limits.health_checks, limits.failure_window, limits.failures_in_row_max)
  life.heard, life.seen_ms = string.sub(life.heard .. sign, -kept), time_ms
  local before = life.status
  if before == 'registering' then
    if string.sub(life.heard, -limits.health_checks) == string.rep('+', limits.health_checks) then
      life_turn(life, 'ready', 'healthy')
    elseif time_ms - life.registered_ms >= limits.warmup_timeout_ms then
      life_turn(life, 'degraded', 'warmup_timeout')
    end
  elseif before == 'ready' then
    if life_fails(life.heard, limits) then life_turn(life, 'degraded', 'unhealthy') end
  elseif before ~= 'draining' then
    if sign == '+' then
      life_turn(life, 'ready', 'recovered')
    elseif before == 'offline' then
      life_turn(life, 'degraded', 'unhealthy')
    end
  end
  if life.status == 'ready' and before ~= 'ready' then life.heard = '+' end
end

local function life_registered(life, time_ms)
  life.registered_ms, life.seen_ms, life.heard, life.detached_ms = time_ms, time_ms, '', 0
  if life.drain_until_ms > time_ms then
    life.status = 'draining'
  else
    life.drain_until_ms = 0
    life_turn(life, 'registering', 'registered')
  end
end

local function life_timed(life, time_ms, limits)
  if time_ms < life_due_ms(life, limits) then return end
  if life.detached_ms > 0 then
    life.status, life.seen_ms = 'offline', 0
  elseif LIFE_STAYS[life.status] then
    life_turn(life, 'offline', 'forgotten')
    life.seen_ms = 0
  else
    life_turn(life, 'offline', 'heartbeat_timeout')
  end
end

-- Changes `life` by an event at `time_ms`; `reason` and `until_ms` are what detach, drain and leave say.
local function life_step(life, event, time_ms, limits, reason, until_ms)
  if event == 'register' then return life_registered(life, time_ms) end
  if life.seen_ms == 0 then return end
  if LIFE_HEARD[event] then
    life_heard(life, LIFE_HEARD[event], time_ms, limits)
  elseif event == 'time' then
    life_timed(life, time_ms, limits)
  elseif event == 'detach' then
    if life.detached_ms == 0 then life.detached_ms, life.reason = time_ms, reason end
  elseif event == 'drain' then
    life_turn(life, 'draining', reason)
    life.drain_until_ms = until_ms
  elseif event == 'resume' then
    if life.status == 'draining' then
      life_turn(life, LIFE_RESUMES[string.sub(life.heard, -1)], 'resumed')
      life.drain_until_ms = 0
    end
  elseif event == 'leave' then
    life_turn(life, 'offline', reason)
    life.seen_ms = 0
  else
    error('no such event: ' .. event)
  end
end
