-- node_silent: which nodes have been silent so long that their record has lapsed; reads only.
-- KEYS
--   nodes      zset   last seen, of the cell
--   view       hash   what snapshots read, of the cell
-- ARGV
--   silent_ms  int    how long is too long
--   limit      int    at most so many
-- RETURNS
--   rows       list   node id, its pools separated by commas; oldest first

local rows = {}
for _, node_id in ipairs(redis.call('ZRANGEBYSCORE', nodes, '-inf', now_ms - silent_ms, 'LIMIT', 0, limit)) do
  rows[#rows + 1] = node_id
  rows[#rows + 1] = redis.call('HGET', view, node_id .. '#pools') or ''
end
return rows
