-- node_list_due: which nodes of a cell the passing of time may change now; reads only.
-- KEYS
--   due    zset   when time changes a node next, of the cell
--   view   hash   what snapshots read, of the cell
-- ARGV
--   limit  int    at most so many
-- RETURNS
--   rows   list   node id, its pools separated by commas; longest due first

local rows = {}
for _, node_id in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now_text, 'LIMIT', 0, limit)) do
  rows[#rows + 1] = node_id
  rows[#rows + 1] = redis.call('HGET', view, node_id .. '#pools') or ''
end
return rows
