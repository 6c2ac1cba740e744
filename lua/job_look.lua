-- job_look: how far a job is; reads only.
-- KEYS
--   job      hash   the job's record
-- RETURNS
--   state    text   its state, or nothing if there is no such job
--   outcome  text   ok | failed, once finished

local record = redis.call('HMGET', job, 'state', 'outcome')
return {record[1] or '', record[2] or ''}
