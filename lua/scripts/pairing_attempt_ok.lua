-- pairing_attempt_ok: the code that a client presented was right, so the use is not held against it.
-- KEYS
--   pairing_wrong  set    uses of the client that came to nothing in this window
-- ARGV
--   use            text   names the use
-- RETURNS
--   forgiven       int    1: it counted until now

return {redis.call('SREM', pairing_wrong, use)}
