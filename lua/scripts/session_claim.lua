-- session_claim: make an edge the owner of a session, if the epoch it knows is still in force.
-- A claim that resumes needs the record and its token, and leaves what the session is. Any other makes the record.
-- KEYS
--   session         hash   the session's record
-- ARGV
--   ref             text   numbers the claims of an edge, or nothing
--   edge            text   who claims
--   epoch           int    the epoch in force; 0 takes over whatever is there
--   resume          int    1: the session must be there
--   token           text   digest of its resume token
--   tenant_id       text   whose session it is
--   src_lang        text   spoken language
--   tgt_lang        text   wanted language
--   trace_id        text   its trace
--   preferred_node  text   the node that it is paired with
--   resumable       int    1: its client will come back
--   ttl_ms          text   life of the record without another word
-- RETURNS
--   verdict         text   ok | held: by another epoch | gone: nothing to resume | wrong_token
--   owner           text   who owns it
--   epoch           int    the epoch in force
--   before          text   another edge that lost it by this claim, or by the one that this repeats
--   tenant_id       text   whose session it is
--   trace_id        text   its trace
--   preferred_node  text   the node that it is paired with
--   room            text   the room that it is in
--   mail            int    entries that wait
--   lost            int    entries that had to be dropped

local record = redis.call('HMGET', session, 'owner', 'epoch', 'claimed_from', 'ref', 'edge_before', 'ref_before', 'token')
local owner, current, token_now = record[1], tonumber(record[2]) or 0, record[7] or ''
local function refused(verdict) return {verdict, owner or '', current, '', '', '', '', '', 0, 0} end
if resume == 1 and not owner then return refused('gone') end
if resume == 1 and (token == '' or token ~= token_now) then return refused('wrong_token') end

-- A claim whose answer was lost is repeated, with the same ref or with the epoch that it replaced.
local repeated = owner == edge
  and ((ref ~= '' and record[4] == ref) or (epoch > 0 and tonumber(record[3]) == epoch))
if owner and not repeated then
  -- A late copy of a claim takes nothing back from the one who came after it.
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
