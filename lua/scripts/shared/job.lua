-- job: creates the record of a job.

-- Writes a new record with TTL `keep_ms`. `holder`: attempt and node that the job belongs to, its fence.
local function create_job(job, keep_ms, holder, request, about)
  redis.call('HSET', job, 'state', 'CREATED', 'holder', holder, 'request', request, 'about', about,
    'created_ms', now_text)
  redis.call('PEXPIRE', job, keep_ms)
end
