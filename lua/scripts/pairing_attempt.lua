-- pairing_attempt: count a client's attempt to redeem a code, as failed until pairing_attempt_ok. Rate-limited.
-- KEYS
--   pairing_wrong  set    failed attempts of the client in this window
-- ARGV
--   use            text   id of the attempt; a retry counts once
--   wrong_max      int    maximum failed attempts per window
--   window_ms      int    the window
-- RETURNS
--   allowed        int    1: the code may be checked
--   wait_ms        int    time until the next window, if not

if redis.call('SISMEMBER', pairing_wrong, use) == 1 then return {1, 0} end
if redis.call('SCARD', pairing_wrong) >= wrong_max then
  return {0, math.max(0, redis.call('PTTL', pairing_wrong))}
end
redis.call('SADD', pairing_wrong, use)
if redis.call('SCARD', pairing_wrong) == 1 then redis.call('PEXPIRE', pairing_wrong, window_ms) end
return {1, 0}
