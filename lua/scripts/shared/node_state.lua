-- node_state: state machine of a node; mesh/states/node.py is its specification, a test compares both.
-- A state is a table of the record's fields. `seen_ms` 0: the node is not listed, and the record has no last_seen_ms.

local HEARTBEAT_SIGN = {healthy = '+', unhealthy = '-'}
local EXEMPT_FROM_TIMEOUT = {offline = true, draining = true}
local STATUS_AFTER_DRAIN = {[''] = 'registering', ['+'] = 'ready', ['-'] = 'degraded'}

local function read_node_state(node)
  local record = redis.call('HMGET', node, 'status', 'reason', 'registered_ms', 'last_seen_ms', 'heard', 'detached_ms',
    'drain_until_ms')
  return {status = record[1] or 'offline', reason = record[2] or '', registered_ms = tonumber(record[3]) or 0,
    seen_ms = tonumber(record[4]) or 0, heard = record[5] or '', detached_ms = tonumber(record[6]) or 0,
    drain_until_ms = tonumber(record[7]) or 0}
end

local function write_node_state(node, state)
  redis.call('HSET', node, 'status', state.status, 'reason', state.reason, 'registered_ms', state.registered_ms,
    'last_seen_ms', state.seen_ms, 'heard', state.heard, 'detached_ms', state.detached_ms,
    'drain_until_ms', state.drain_until_ms)
  if state.seen_ms == 0 then redis.call('HDEL', node, 'last_seen_ms') end
end

-- Time of the node's next timeout.
local function node_state_due_ms(state, limits)
  if state.detached_ms > 0 then return state.detached_ms + limits.reconnect_grace_ms end
  return state.seen_ms + (EXEMPT_FROM_TIMEOUT[state.status] and limits.record_ttl_ms or limits.heartbeat_timeout_ms)
end

local function set_node_status(state, status, reason)
  state.status, state.reason = status, reason
end

local function node_state_fails(heard, limits)
  local _, in_window = string.gsub(string.sub(heard, -limits.failure_window), '%-', '')
  local in_row = limits.failures_in_row_max
  return in_window >= limits.failures_max or string.sub(heard, -in_row) == string.rep('-', in_row)
end

local function node_state_heartbeat(state, sign, time_ms, limits)
  if state.detached_ms > 0 then return end
  local history = math.max(limits.health_checks, limits.failure_window, limits.failures_in_row_max)
  state.heard, state.seen_ms = string.sub(state.heard .. sign, -history), time_ms
  local before = state.status
  if before == 'registering' then
    if string.sub(state.heard, -limits.health_checks) == string.rep('+', limits.health_checks) then
      set_node_status(state, 'ready', 'healthy')
    elseif time_ms - state.registered_ms >= limits.warmup_timeout_ms then
      set_node_status(state, 'degraded', 'warmup_timeout')
    end
  elseif before == 'ready' then
    if node_state_fails(state.heard, limits) then set_node_status(state, 'degraded', 'unhealthy') end
  elseif before ~= 'draining' then
    if sign == '+' then
      set_node_status(state, 'ready', 'recovered')
    elseif before == 'offline' then
      set_node_status(state, 'degraded', 'unhealthy')
    end
  end
  if state.status == 'ready' and before ~= 'ready' then state.heard = '+' end
end

local function node_state_register(state, time_ms)
  state.registered_ms, state.seen_ms, state.heard, state.detached_ms = time_ms, time_ms, '', 0
  if state.drain_until_ms > time_ms then
    state.status = 'draining'
  else
    state.drain_until_ms = 0
    set_node_status(state, 'registering', 'registered')
  end
end

local function node_state_timeout(state, time_ms, limits)
  if time_ms < node_state_due_ms(state, limits) then return end
  if state.detached_ms > 0 then
    state.status, state.seen_ms = 'offline', 0
  elseif EXEMPT_FROM_TIMEOUT[state.status] then
    set_node_status(state, 'offline', 'forgotten')
    state.seen_ms = 0
  else
    set_node_status(state, 'offline', 'heartbeat_timeout')
  end
end

-- Applies an event at `time_ms` to `state`; detach, drain and leave have a `reason`, drain has `until_ms`.
local function node_state_step(state, event, time_ms, limits, reason, until_ms)
  if event == 'register' then return node_state_register(state, time_ms) end
  if state.seen_ms == 0 then return end
  if HEARTBEAT_SIGN[event] then
    node_state_heartbeat(state, HEARTBEAT_SIGN[event], time_ms, limits)
  elseif event == 'time' then
    node_state_timeout(state, time_ms, limits)
  elseif event == 'detach' then
    if state.detached_ms == 0 then state.detached_ms, state.reason = time_ms, reason end
  elseif event == 'drain' then
    set_node_status(state, 'draining', reason)
    state.drain_until_ms = until_ms
  elseif event == 'resume' then
    if state.status == 'draining' then
      set_node_status(state, STATUS_AFTER_DRAIN[string.sub(state.heard, -1)], 'resumed')
      state.drain_until_ms = 0
    end
  elseif event == 'leave' then
    set_node_status(state, 'offline', reason)
    state.seen_ms = 0
  else
    error('no such event: ' .. event)
  end
end
