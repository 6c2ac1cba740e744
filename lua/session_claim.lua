-- session_claim: make an edge the owner of a session, if the epoch it knows is still in force.
-- KEYS
--   session    hash   the session's record
-- ARGV
--   edge       text   who claims
--   epoch      int    the epoch in force; 0 takes over whatever is there
--   tenant_id  text   whose session it is
--   src_lang   text   spoken language
--   tgt_lang   text   wanted language
--   ttl_ms     text   life of the record without another claim
-- RETURNS
--   ok         int    1: the caller owns it
--   owner      text   who owns it
--   epoch      int    the epoch in force

local record = redis.call('HMGET', session, 'owner', 'epoch', 'claimed_from')
local owner, current = record[1], tonumber(record[2]) or 0
-- A claim whose answer was lost is repeated with the epoch that it replaced.
local repeated = owner == edge and epoch > 0 and tonumber(record[3]) == epoch
if owner and epoch > 0 and epoch ~= current and not repeated then return {0, owner, current} end

local claimed = current
if owner ~= edge or epoch == 0 then
  claimed = math.max(current + 1, epoch + 1, now_ms)
  redis.call('HSET', session, 'claimed_from', string.format('%.0f', epoch))
end
redis.call('HSET', session, 'owner', edge, 'epoch', string.format('%.0f', claimed), 'tenant', tenant_id,
  'src_lang', src_lang, 'tgt_lang', tgt_lang, 'seen_ms', now_text)
redis.call('PEXPIRE', session, ttl_ms)
return {1, edge, claimed}
