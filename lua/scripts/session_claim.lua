-- session_claim: make an edge the owner of a session, if its epoch is in force. The new epoch is the fencing token.
-- A resuming claim needs the record and its token and keeps the session's facts. Any other claim writes the record.
-- KEYS
--   session         hash   record of the session
-- ARGV
--   ref             text   number of the claim at its edge, or empty
--   edge            text   the claiming edge
--   epoch           int    the epoch in force; 0: take over
--   resume          int    1: the session must exist
--   token           text   digest of its resume token
--   tenant_id       text   tenant of the session
--   src_lang        text   spoken language
--   tgt_lang        text   wanted language
--   trace_id        text   its trace
--   preferred_node  text   the node paired with the session
--   resumable       int    1: its client may reconnect
--   ttl_ms          text   TTL of the record
-- RETURNS
--   verdict         text   ok | held: another epoch is in force | gone: nothing to resume | wrong_token
--   owner           text   the owner
--   epoch           int    the epoch in force
--   before          text   edge that lost the session by this claim (or by the one that this retries)
--   tenant_id       text   tenant of the session
--   trace_id        text   its trace
--   preferred_node  text   the node paired with the session
--   room            text   room of the session
--   mail            int    entries in the mail
--   lost            int    entries evicted from the mail

local record = redis.call('HMGET', session, 'owner', 'epoch', 'claimed_from', 'ref', 'edge_before', 'ref_before',
  'token')
local owner, current, token_now = record[1], tonumber(record[2]) or 0, record[7] or ''
local function refused(verdict) return {verdict, owner or '', current, '', '', '', '', '', 0, 0} end
if resume == 1 and not owner then return refused('gone') end
if resume == 1 and (token == '' or token ~= token_now) then return refused('wrong_token') end

-- A claim whose reply was lost is retried with the same ref, or with the epoch that it replaced.
local repeated = owner == edge
  and ((ref ~= '' and record[4] == ref) or (epoch > 0 and tonumber(record[3]) == epoch))
if owner and not repeated then
  -- A delayed duplicate must not take the session back from a later owner.
  local late = ref ~= '' and record[5] == edge and record[6] == ref
  if late or (epoch > 0 and epoch ~= current) then return refused('held') end
end

local claimed, before = current, ''
if repeated then
  before = record[5] or ''
else
  local makes = not owner or (resume == 0 and epoch == 0 and token ~= token_now)
  if makes then
    if owner then redis.call('DEL', session) end
    redis.call('HSET', session, 'token', token, 'trace_id', trace_id, 'preferred_node', preferred_node)
  end
  if owner ~= edge or epoch == 0 then
    claimed = math.max(current + 1, epoch + 1, now_ms)
    redis.call('HSET', session, 'claimed_from', string.format('%.0f', epoch), 'ref', ref)
  end
  if owner and owner ~= edge then
    before = owner
    redis.call('HSET', session, 'edge_before', owner, 'ref_before', record[4] or '')
  end
  if resume == 0 then redis.call('HSET', session, 'tenant', tenant_id) end
  if resumable == 1 or makes then redis.call('HSET', session, 'resumable', resumable) end
  redis.call('HSET', session, 'owner', edge, 'epoch', string.format('%.0f', claimed), 'src_lang', src_lang,
    'tgt_lang', tgt_lang, 'seen_ms', now_text, 'away_ms', 0)
end
redis.call('PEXPIRE', session, ttl_ms)
local is = redis.call('HMGET', session, 'tenant', 'trace_id', 'preferred_node', 'room', 'mail_count', 'mail_lost')
for i = 1, 4 do is[i] = is[i] or '' end
return {'ok', edge, claimed, before, is[1], is[2], is[3], is[4], tonumber(is[5]) or 0, tonumber(is[6]) or 0}
