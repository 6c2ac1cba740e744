-- model_mark: mark a service as missing on a node: until it expires, no job that needs the service. Rate-limited.
-- USES lease
-- KEYS
--   node            hash   the node's record
--   leases          zset   its slots in use
--   ledger          hash   slots in use and versions; one per cell
--   changes         zset   version of each changed node; one per cell
--   marks           hash   services that nodes lack; one per cell
--   model_words     string number of reports of the node in this window
-- ARGV
--   node_id         text   id of the node
--   epoch           int    epoch of the reporting connection
--   service         text   the missing service
--   count           int    reports since the last call
--   window_ms       int    the window
--   words_max       int    maximum number of reports per window; more are dropped
--   unavailable_ms  int    duration of the mark
--   marks_max       int    maximum marks per node; the one that expires first is evicted
-- RETURNS
--   verdict         text   marked | limited | unknown: not listed with that epoch
--   version         int    of the node
--   packed          bytes  all marks of the node with their expiry

local record = redis.call('HMGET', node, 'epoch', 'last_seen_ms')
if tonumber(record[1] or 0) ~= epoch or not record[2] then return {'unknown', 0, ''} end
local words = redis.call('INCRBY', model_words, count)
if words == count then redis.call('PEXPIRE', model_words, window_ms) end
if words - count >= words_max then return {'limited', 0, ''} end

local is_read, known = pcall(cmsgpack.unpack, redis.call('HGET', marks, node_id) or '')
local kept, others, first = {}, 0, nil
for name, until_ms in pairs(is_read and type(known) == 'table' and known or {}) do
  if until_ms > now_ms and name ~= service then
    kept[name], others = until_ms, others + 1
    if not first or until_ms < kept[first] then first = name end
  end
end
if others >= marks_max then kept[first] = nil end
kept[service] = now_ms + unavailable_ms
local packed = cmsgpack.pack(kept)
local version, text = update_ledger(redis.call('ZCARD', leases), ledger, changes, node_id, true)
if version == 0 then return {'unknown', 0, ''} end
redis.call('HSET', marks, node_id, packed)
redis.call('HSET', ledger, node_id .. '#m', text)
return {'marked', version, packed}
