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
--   attempt     int    the attempt that the event belongs to
--   events      text   dispatch | accept | start | finish | release, several separated by blanks
--   outcome     text   ok | failed, recorded by finish
--   lease_ms    int    life of the slot from now on, while the job runs
--   keep_ms     int    life of the job's record
-- RETURNS
--   verdict     text   moved | same | fenced | unknown
--   state       text   where the job is now
--   outcome     text   ok | failed, once finished
--   edge        text   the edge that owned the session
--   session_id  text   its session
--   request_id  text   its request
--   leased      int    1: it holds a slot
--   used        int    the node's slots in use
--   version     int    of the node's cell

local ARRIVES = {dispatch = 'DISPATCHED', accept = 'ACCEPTED', start = 'RUNNING', finish = 'FINISHED',
  release = 'RELEASED'}
local PLACE = {CREATED = 1, DISPATCHED = 2, ACCEPTED = 3, RUNNING = 4, FINISHED = 5, RELEASED = 6}

local record = redis.call('HMGET', job, 'state', 'attempt', 'node', 'outcome', 'edge', 'session', 'request')
local state = record[1]
if not state then return {'unknown', '', '', '', '', '', 0, 0, 0} end
if tonumber(record[2]) ~= attempt or record[3] ~= node_id then
  return {'fenced', state, record[4] or '', record[5], record[6], record[7], 0, 0, 0}
end

local written, finished = {}, record[4] or ''
for event in string.gmatch(events, '%S+') do
  local goal = ARRIVES[event] or error('no such event: ' .. event)
  if PLACE[goal] > PLACE[state] then
    state = goal
    written[#written + 1] = event .. '_ms'
    written[#written + 1] = now_ms
    if event == 'finish' then finished = outcome end
  end
end

local leased = 0
if state == 'RELEASED' then
  redis.call('ZREM', leases, member)
else
  live_leases(leases)
  leased = redis.call('ZSCORE', leases, member) and 1 or 0
end
if #written > 0 then
  redis.call('HSET', job, 'state', state, 'outcome', finished, unpack(written))
  redis.call('PEXPIRE', job, keep_ms)
  -- A lease that lapsed on the way is taken again only if that sells no slot twice.
  local max_jobs = tonumber(redis.call('HGET', node, 'max_jobs')) or 0
  if state ~= 'RELEASED' and (leased == 1 or not is_full(leases, max_jobs)) then
    hold(leases, member, lease_ms, keep_ms)
    leased = 1
  end
end
local used, version = settle(leases, ledger, changes, node_id)
local verdict = #written > 0 and 'moved' or 'same'
return {verdict, state, finished, record[5], record[6], record[7], leased, used, version}
