-- job: how a job's record begins.

-- Writes a new record that lives `keep_ms`. `holder` is the attempt and the node that it belongs to.
local function open_job(job, keep_ms, holder, request, about)
  redis.call('HSET', job, 'state', 'CREATED', 'holder', holder, 'request', request, 'about', about,
    'created_ms', now_text)
  redis.call('PEXPIRE', job, keep_ms)
end
