-- job_advance: move a job along its state machine; a repeated event is a no-op, another attempt's is fenced off.
-- The table is mesh/jobs.py; a test walks every state and event through both.
-- USES lease
-- KEYS
--   job         hash   the job's record
--   node        hash   the node's record
--   leases      zset   the node's slots in use
--   ledger      hash   slots in use and versions, of the node's cell
--   changes     zset   versions, of the node's cell
-- ARGV
--   node_id     text   the node that the event came from
--   member      text   the job's name among the leases
--   holder      text   attempt and node that the event belongs to
--   events      text   dispatch | accept | start | finish | release, several separated by blanks
--   success     text   ok | failed, recorded by finish
--   lease_ms    int    life of the slot from now on, while the job runs
--   leases_ms   text   life of the set of leases
-- RETURNS
--   verdict     text   moved | same | fenced | unknown
--   state       text   where the job is now
--   outcome     text   ok | failed, once finished
--   request     text   the job's request, session and session's edge
--   leased      int    1: it holds a slot
--   used        int    the node's slots in use; -1 if they cannot have changed
--   version     int    of the node's cell

local ARRIVES = {dispatch = 'DISPATCHED', accept = 'ACCEPTED', start = 'RUNNING', finish = 'FINISHED',
  release = 'RELEASED'}
local PLACE = {CREATED = 1, DISPATCHED = 2, ACCEPTED = 3, RUNNING = 4, FINISHED = 5, RELEASED = 6}

local record = redis.call('HMGET', job, 'state', 'holder', 'request', 'outcome')
local state, outcome = record[1], record[4] or ''
if not state then return {'unknown', '', '', '', 0, -1, 0} end
if record[2] ~= holder then return {'fenced', state, outcome, record[3], 0, -1, 0} end

local written = {}
for event in string.gmatch(events, '%S+') do
  local goal = ARRIVES[event] or error('no such event: ' .. event)
  if PLACE[goal] > PLACE[state] then
    state = goal
    written[#written + 1] = event .. '_ms'
    written[#written + 1] = now_text
    if event == 'finish' then outcome = success end
  end
end
if #written > 0 then redis.call('HSET', job, 'state', state, 'outcome', outcome, unpack(written)) end

local leased, used, version = 0, -1, 0
if state == 'RELEASED' then
  local removed = redis.call('ZREM', leases, member)
  if removed == 1 or #written > 0 then used = redis.call('ZCARD', leases) end
elseif redis.call('ZSCORE', leases, member) then
  leased = 1
  if #written > 0 then redis.call('ZADD', leases, now_ms + lease_ms, member) end
elseif #written > 0 then
  -- Its lease lapsed and was dropped. It is taken again only if that sells no slot twice.
  local taken, is_full = slots_in_use(leases, tonumber(redis.call('HGET', node, 'max_jobs')) or 0)
  used = taken
  if not is_full then leased, used = 1, hold(leases, taken, member, lease_ms, leases_ms) end
end
if leased == 1 and #written > 0 then redis.call('PEXPIRE', leases, leases_ms) end
if used >= 0 then version = settle(used, ledger, changes, node_id) end
return {#written > 0 and 'moved' or 'same', state, outcome, record[3], leased, used, version}
