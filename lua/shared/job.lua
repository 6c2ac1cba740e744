-- job: how a job's record begins.

-- Writes a new record that lives `keep_ms`; `fields` is a list of names and values.
local function open_job(job, keep_ms, fields)
  redis.call('HSET', job, 'state', 'CREATED', 'created_ms', now_ms, unpack(fields))
  redis.call('PEXPIRE', job, keep_ms)
end
