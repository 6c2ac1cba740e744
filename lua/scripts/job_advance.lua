-- job_advance: apply events to a job's state machine. Idempotent; events of another attempt are fenced.
-- The table is mesh/states/job.py; a test walks every state and event through both.
-- USES lease, speed
-- KEYS
--   job         hash   the job's record
--   node        hash   the node's record
--   leases      zset   the node's slots in use
--   ledger      hash   slots in use and versions; one per cell (the node's)
--   changes     zset   version of each changed node; one per cell (the node's)
-- KEYS per lesson
--   speeds      hash   measured speeds of the nodes; one per cell (the node's)
-- ARGV
--   node_id     text   the node that the event came from
--   member      text   member of the lease set: job and attempt
--   holder      text   attempt and node that the event belongs to
--   events      text   dispatch | accept | start | finish | release, several separated by blanks
--   success     text   ok | failed, recorded by finish
--   lease_ms    int    duration of the lease from now on, while the job runs
--   leases_ms   text   TTL of the set of leases
-- ARGV per lesson          none or one: measurement of the node's speed, applied if the job finishes now
--   pair             text  its language pair
--   took_ms          int   processing time
--   audio_ms         int   length of its audio, not 0
--   jobs_remembered  int   jobs in the moving mean
--   half_life_ms     int   half-life of their weight
--   pairs_max        int   language pairs per node with a speed of their own
-- RETURNS
--   verdict     text   moved | same | fenced | unknown
--   state       text   state of the job afterwards
--   outcome     text   ok | failed, once finished
--   request     text   the job's request, session and session's edge
--   leased      int    1: it holds a slot
--   used        int    the node's slots in use; -1 if they cannot have changed
--   version     int    of the node
--   learned     bytes  packed speeds updated by this job, or empty

local ARRIVES = {dispatch = 'DISPATCHED', accept = 'ACCEPTED', start = 'RUNNING', finish = 'FINISHED',
  release = 'RELEASED'}
local PLACE = {CREATED = 1, DISPATCHED = 2, ACCEPTED = 3, RUNNING = 4, FINISHED = 5, RELEASED = 6}

local record = redis.call('HMGET', job, 'state', 'holder', 'request', 'outcome')
local state, outcome = record[1], record[4] or ''
if not state then
  -- The record is lost or expired. A lease of the job is released nevertheless.
  if redis.call('ZREM', leases, member) == 0 then return {'unknown', '', '', '', 0, -1, 0, ''} end
  local used = redis.call('ZCARD', leases)
  local version = update_ledger(used, ledger, changes, node_id)
  return {'unknown', '', '', '', 0, used, version, ''}
end
if record[2] ~= holder then return {'fenced', state, outcome, record[3], 0, -1, 0, ''} end

local written, is_finished_now = {}, false
for event in string.gmatch(events, '%S+') do
  local goal = ARRIVES[event] or error('no such event: ' .. event)
  if PLACE[goal] > PLACE[state] then
    state = goal
    written[#written + 1] = event .. '_ms'
    written[#written + 1] = now_text
    if event == 'finish' then outcome, is_finished_now = success, true end
  end
end
if #written > 0 then redis.call('HSET', job, 'state', state, 'outcome', outcome, unpack(written)) end

local leased, used, version, learned = 0, -1, 0, ''
if state == 'RELEASED' then
  local removed = redis.call('ZREM', leases, member)
  if removed == 1 or #written > 0 then used = redis.call('ZCARD', leases) end
elseif redis.call('ZSCORE', leases, member) then
  leased = 1
  if #written > 0 then redis.call('ZADD', leases, now_ms + lease_ms, member) end
elseif #written > 0 then
  -- The lease expired and was dropped. It is renewed only if a slot is free.
  local slots = tonumber(redis.call('HGET', node, 'max_jobs')) or 0
  used = slots_in_use(leases, slots - 1)
  if used < slots then leased, used = 1, add_lease(leases, used, member, lease_ms, leases_ms) end
end
if leased == 1 and #written > 0 then redis.call('PEXPIRE', leases, leases_ms) end

local teaches = is_finished_now and #lessons > 0
if teaches and used < 0 then used = redis.call('ZCARD', leases) end
if used >= 0 then
  local text
  version, text = update_ledger(used, ledger, changes, node_id, teaches)
  -- No speeds for a node that is not listed: nothing would delete them.
  if teaches and version > 0 then
    for _, lesson in ipairs(lessons) do
      local ratio = lesson.took_ms / lesson.audio_ms
      learned = update_speeds(lesson.speeds, node_id, lesson.pair, ratio, lesson.jobs_remembered, lesson.half_life_ms,
        lesson.pairs_max)
    end
    redis.call('HSET', ledger, node_id .. '#s', text)
  end
end
return {#written > 0 and 'moved' or 'same', state, outcome, record[3], leased, used, version, learned}
