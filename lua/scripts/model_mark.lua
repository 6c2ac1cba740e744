-- model_mark: a node said that it lacks a model. Until the mark lapses it gets no job that needs the service.
-- USES lease
-- KEYS
--   node            hash   the node's record
--   leases          zset   its slots in use
--   ledger          hash   slots in use and versions, of the cell
--   changes         zset   versions, of the cell
--   marks           hash   what nodes lack, of the cell
--   model_words     string how often the node said so in this window
-- ARGV
--   node_id         text   which node
--   epoch           int    of the connection that said so
--   service         text   what it lacks
--   count           int    how often it said so since the last call
--   window_ms       int    the window
--   words_max       int    words that count in a window; the rest are dropped
--   unavailable_ms  int    life of the mark
--   marks_max       int    services that one node can lack; the mark that lapses first makes room
-- RETURNS
--   verdict         text   marked | limited | unknown: not on the lists by that connection
--   version         int    of the node
--   packed          bytes  all that it lacks, each with its end

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
local version, text = settle(redis.call('ZCARD', leases), ledger, changes, node_id, true)
if version == 0 then return {'unknown', 0, ''} end
redis.call('HSET', marks, node_id, packed)
redis.call('HSET', ledger, node_id .. '#m', text)
return {'marked', version, packed}
