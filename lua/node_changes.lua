-- node_changes: which nodes of a cell changed since a version; reads only.
-- KEYS
--   nodes    zset   last seen, of the cell
--   ledger   hash   slots in use and versions, of the cell
--   changes  zset   versions, of the cell
--   view     hash   what snapshots read, of the cell
-- ARGV
--   since    int    version that the caller has; 0 for all
--   limit    int    at most so many rows
-- RETURNS
--   version  int    ask from here next time
--   time_ms  int    Redis's clock
--   more     int    1: ask again at once
--   reset    int    1: the caller's version is from before the cell lost something, so the rows start from the beginning
--   rows     list   per node: id, version, used (-1: gone), last seen, packed caps, packed now; the last two are empty
--                   when only the used count changed

local life = redis.call('HMGET', ledger, '#version', '#born')
local newest, born = tonumber(life[1]) or 0, tonumber(life[2]) or 0
local reset = 0
if since > newest or (since > 0 and since < born) then since, reset = 0, 1 end

local found = redis.call('ZRANGEBYSCORE', changes, '(' .. string.format('%.0f', since), '+inf', 'WITHSCORES',
  'LIMIT', 0, limit)
local reply = {since, now_ms, #found / 2 == limit and 1 or 0, reset}
for i = 1, #found, 2 do
  local id = found[i]
  reply[1] = tonumber(found[i + 1])
  local count = redis.call('HMGET', ledger, id, id .. '#v')
  local caps, now = '', ''
  if (tonumber(count[2]) or 0) > since then
    local seen = redis.call('HMGET', view, id, id .. '#now')
    caps, now = seen[1] or '', seen[2] or ''
  end
  local row = {id, reply[1], tonumber(count[1]) or -1, tonumber(redis.call('ZSCORE', nodes, id)) or 0, caps, now}
  for _, value in ipairs(row) do reply[#reply + 1] = value end
end
return reply
