-- pairing_attempt: a client is about to present a code. It counts as wrong until pairing_attempt_ok says that it was right.
-- KEYS
--   pairing_wrong  set    uses of the client that came to nothing in this window
-- ARGV
--   use            text   names the use; a repeat of it counts once
--   wrong_max      int    so many in a window
--   window_ms      int    the window
-- RETURNS
--   allowed        int    1: look at the code
--   wait_ms        int    time until the next window, if not

if redis.call('SISMEMBER', pairing_wrong, use) == 1 then return {1, 0} end
if redis.call('SCARD', pairing_wrong) >= wrong_max then
  return {0, math.max(0, redis.call('PTTL', pairing_wrong))}
end
redis.call('SADD', pairing_wrong, use)
if redis.call('SCARD', pairing_wrong) == 1 then redis.call('PEXPIRE', pairing_wrong, window_ms) end
return {1, 0}
