-- job_get: record of a job; read-only.
-- KEYS
--   job           hash   the job's record
-- RETURNS
--   state         text   its state, empty if there is no such job
--   outcome       text   ok | failed, once finished
--   holder        text   attempt and node that it belongs to
--   request       text   the job's request, session and session's edge
--   reason        text   of a release
--   ended_for_ms  int    time since it finished; -1: it has not
--   times         list   time of: created, dispatched, accepted, started, finished, released; 0: has not happened

local record = redis.call('HMGET', job, 'state', 'outcome', 'holder', 'request', 'reason', 'finish_ms',
  'created_ms', 'dispatch_ms', 'accept_ms', 'start_ms', 'finish_ms', 'release_ms')
for i = 1, 5 do record[i] = record[i] or '' end
record[6] = record[6] and math.max(0, now_ms - record[6]) or -1
for i = 7, 12 do record[i] = tonumber(record[i]) or 0 end
return record
