-- job_advance: move a job along its state machine; a repeated event is a no-op, another attempt's is fenced off.
-- The table is mesh/states/job.py; a test walks every state and event through both.
-- USES lease, speed
-- KEYS
--   job         hash   the job's record
--   node        hash   the node's record
--   leases      zset   the node's slots in use
--   ledger      hash   slots in use and versions, of the node's cell
--   changes     zset   versions, of the node's cell
-- KEYS per lesson
--   speeds      hash   what is known of speeds, of the node's cell
-- ARGV
--   node_id     text   the node that the event came from
--   member      text   the job's name among the leases
--   holder      text   attempt and node that the event belongs to
--   events      text   dispatch | accept | start | finish | release, several separated by blanks
--   success     text   ok | failed, recorded by finish
--   lease_ms    int    life of the slot from now on, while the job runs
--   leases_ms   text   life of the set of leases
-- ARGV per lesson          none or one: what the job says of the node's speed, if it finishes now
--   pair             text  its languages
--   took_ms          int   time that it took
--   audio_ms         int   length of its audio, not 0
--   jobs_remembered  int   jobs that the mean remembers
--   half_life_ms     int   time in which they fade by half
--   pairs_max        int   pairs that are told apart
-- RETURNS
--   verdict     text   moved | same | fenced | unknown
--   state       text   where the job is now
--   outcome     text   ok | failed, once finished
--   request     text   the job's request, session and session's edge
--   leased      int    1: it holds a slot
--   used        int    the node's slots in use; -1 if they cannot have changed
--   version     int    of the node
--   learned     bytes  packed speeds that it taught, or nothing

local ARRIVES = {dispatch = 'DISPATCHED', accept = 'ACCEPTED', start = 'RUNNING', finish = 'FINISHED',
  release = 'RELEASED'}
local PLACE = {CREATED = 1, DISPATCHED = 2, ACCEPTED = 3, RUNNING = 4, FINISHED = 5, RELEASED = 6}

local record = redis.call('HMGET', job, 'state', 'holder', 'request', 'outcome')
local state, outcome = record[1], record[4] or ''
if not state then
  -- Redis lost it, or it is long past. If it holds a slot that goes back all the same.
  if redis.call('ZREM', leases, member) == 0 then return {'unknown', '', '', '', 0, -1, 0, ''} end
  local used = redis.call('ZCARD', leases)
  local version = settle(used, ledger, changes, node_id)
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
  -- Its lease lapsed and was dropped. It is taken again only if that sells no slot twice.
  local slots = tonumber(redis.call('HGET', node, 'max_jobs')) or 0
  used = slots_in_use(leases, slots - 1)
  if used < slots then leased, used = 1, hold(leases, used, member, lease_ms, leases_ms) end
end
if leased == 1 and #written > 0 then redis.call('PEXPIRE', leases, leases_ms) end

local teaches = is_finished_now and #lessons > 0
if teaches and used < 0 then used = redis.call('ZCARD', leases) end
if used >= 0 then
  local text
  version, text = settle(used, ledger, changes, node_id, teaches)
  -- A node that is off the lists learns nothing: nobody would clean up after it.
  if teaches and version > 0 then
    for _, lesson in ipairs(lessons) do
      local ratio = lesson.took_ms / lesson.audio_ms
      learned = learn(lesson.speeds, node_id, lesson.pair, ratio, lesson.jobs_remembered, lesson.half_life_ms,
        lesson.pairs_max)
    end
    redis.call('HSET', ledger, node_id .. '#s', text)
  end
end
return {#written > 0 and 'moved' or 'same', state, outcome, record[3], leased, used, version, learned}
