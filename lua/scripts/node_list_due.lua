-- node_list_due: nodes of a cell with an elapsed timeout; read-only.
-- KEYS
--   due    zset   time of each node's next timeout; one per cell
--   view   hash   view of the nodes, read by snapshots; one per cell
-- ARGV
--   limit  int    maximum number
-- RETURNS
--   rows   list   node id, its pools separated by commas; longest due first

local rows = {}
for _, node_id in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now_text, 'LIMIT', 0, limit)) do
  rows[#rows + 1] = node_id
  rows[#rows + 1] = redis.call('HGET', view, node_id .. '#pools') or ''
end
return rows
