-- advance: applies events to the state machine of a job, and to the slot and the speeds of its node.
-- The table is mesh/states/job.py; a test walks every state and event through both.
-- USES lease, speed

local STATE_AFTER = {dispatch = 'DISPATCHED', accept = 'ACCEPTED', start = 'RUNNING', finish = 'FINISHED',
  release = 'RELEASED'}
local STATE_ORDER = {CREATED = 1, DISPATCHED = 2, ACCEPTED = 3, RUNNING = 4, FINISHED = 5, RELEASED = 6}

-- Returns the reply about the job (verdict, state, outcome, request, 1 if it holds a slot, the node's slots in use or
-- -1 if they cannot have changed), and whether it finished now. Writes job and leases, but not the ledger.
local function advance_job(job, node, leases, member, holder, events, success, lease_ms, leases_ms)
  local record = redis.call('HMGET', job, 'state', 'holder', 'request', 'outcome')
  local state, outcome = record[1], record[4] or ''
  if not state then
    -- The record is lost or expired. A lease of the job is released nevertheless.
    local used = redis.call('ZREM', leases, member) == 1 and redis.call('ZCARD', leases) or -1
    return {'unknown', '', '', '', 0, used}, false
  end
  if record[2] ~= holder then return {'fenced', state, outcome, record[3], 0, -1}, false end

  local written, is_finished_now = {}, false
  for event in string.gmatch(events, '%S+') do
    local goal = STATE_AFTER[event] or error('no such event: ' .. event)
    if STATE_ORDER[goal] > STATE_ORDER[state] then
      state = goal
      written[#written + 1] = event .. '_ms'
      written[#written + 1] = now_text
      if event == 'finish' then outcome, is_finished_now = success, true end
    end
  end
  local has_moved = #written > 0
  if has_moved then redis.call('HSET', job, 'state', state, 'outcome', outcome, unpack(written)) end

  local leased, used = 0, -1
  if state == 'RELEASED' then
    local removed = redis.call('ZREM', leases, member)
    if removed == 1 or has_moved then used = redis.call('ZCARD', leases) end
  elseif redis.call('ZSCORE', leases, member) then
    leased = 1
    if has_moved then redis.call('ZADD', leases, now_ms + lease_ms, member) end
  elseif has_moved then
    -- The lease expired and was dropped. It is renewed only if a slot is free.
    local slots = tonumber(redis.call('HGET', node, 'max_jobs')) or 0
    used = slots_in_use(leases, slots - 1)
    if used < slots then leased, used = 1, add_lease(leases, used, member, lease_ms, leases_ms) end
  end
  if leased == 1 and has_moved then redis.call('PEXPIRE', leases, leases_ms) end
  return {has_moved and 'moved' or 'same', state, outcome, record[3], leased, used}, is_finished_now
end

-- Writes `used` slots in use to the node's ledger, and the speed that the job measured: `lessons` has none or one.
-- Returns the node's version, and the packed speeds updated by this job, or ''.
local function publish_job(used, ledger, changes, node_id, lessons)
  local lesson = lessons[1]
  local version = update_ledger(used, ledger, changes, node_id, lesson, lesson)
  -- No speeds for a node that is not listed: nothing would delete them.
  if not lesson or version == 0 then return version, '' end
  return version, update_speeds(lesson.speeds, node_id, lesson.pair, lesson.took_ms / lesson.audio_ms,
    lesson.jobs_remembered, lesson.half_life_ms, lesson.pairs_max)
end
