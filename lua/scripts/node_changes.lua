-- node_changes: nodes of a cell that changed after a version; read-only.
-- KEYS
--   nodes    zset   last heartbeat of each node; one per cell
--   ledger   hash   slots in use and versions; one per cell
--   changes  zset   version of each changed node; one per cell
--   view     hash   view of the nodes, read by snapshots; one per cell
--   speeds   hash   measured speeds of the nodes; one per cell
--   marks    hash   services that nodes lack; one per cell
-- ARGV
--   since    int    the caller's version; 0: all nodes
--   limit    int    maximum number of rows
-- RETURNS
--   version  int    `since` of the next call
--   time_ms  int    Redis's clock
--   more     int    1: more rows follow, call again
--   reset    int    1: the caller's version predates a loss of data in Redis, so the rows start from the beginning
--   rows     list   per node: id, version, used (-1: removed), last seen, packed caps, now, packed load, pools, packed
--                   speeds, packed marks (these six are null while unchanged), slots corrected by the last audit

local versions = redis.call('HMGET', ledger, '#version', '#born')
local newest, born = tonumber(versions[1]) or 0, tonumber(versions[2]) or 0
local reset = 0
if since > newest or (since > 0 and since < born) then since, reset = 0, 1 end

local found = redis.call('ZRANGEBYSCORE', changes, '(' .. string.format('%.0f', since), '+inf', 'WITHSCORES',
  'LIMIT', 0, limit)
local reply = {since, now_ms, #found / 2 == limit and 1 or 0, reset}
local at = #reply
for i = 1, #found, 2 do
  local id = found[i]
  reply[1] = tonumber(found[i + 1])
  local count = redis.call('HMGET', ledger, id, id .. '#v', id .. '#s', id .. '#m', id .. '#d')
  reply[at + 1], reply[at + 2], reply[at + 3] = id, reply[1], tonumber(count[1]) or -1
  reply[at + 4] = tonumber(redis.call('ZSCORE', nodes, id)) or 0
  for field = 5, 10 do reply[at + field] = false end
  if (tonumber(count[2]) or 0) > since then
    local seen = redis.call('HMGET', view, id, id .. '#now', id .. '#load', id .. '#pools')
    for field = 1, 4 do reply[at + 4 + field] = seen[field] end
  end
  if count[3] and tonumber(count[3]) > since then reply[at + 9] = redis.call('HGET', speeds, id) end
  if count[4] and tonumber(count[4]) > since then reply[at + 10] = redis.call('HGET', marks, id) end
  reply[at + 11] = tonumber(count[5]) or 0
  at = at + 11
end
return reply
