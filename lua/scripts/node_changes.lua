-- node_changes: which nodes of a cell changed since a version; reads only.
-- KEYS
--   nodes    zset   last seen, of the cell
--   ledger   hash   slots in use and versions, of the cell
--   changes  zset   versions, of the cell
--   view     hash   what snapshots read, of the cell
--   speeds   hash   what is known of speeds, of the cell
--   marks    hash   what nodes lack, of the cell
-- ARGV
--   since    int    version that the caller has; 0 for all
--   limit    int    at most so many rows
-- RETURNS
--   version  int    ask from here next time
--   time_ms  int    Redis's clock
--   more     int    1: ask again at once
--   reset    int    1: the caller's version is from before the cell lost something, so the rows start from the beginning
--   rows     list   per node: id, version, used (-1: gone), last seen, packed caps, now, packed load, pools, packed
--                   speeds, packed marks (these six are nothing while unchanged), slots that the last audit put right

local life = redis.call('HMGET', ledger, '#version', '#born')
local newest, born = tonumber(life[1]) or 0, tonumber(life[2]) or 0
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
