-- pairing_attempt_ok: the code was right: remove the attempt from the client's failed attempts.
-- KEYS
--   pairing_wrong  set    failed attempts of the client in this window
-- ARGV
--   use            text   id of the attempt
-- RETURNS
--   forgiven       int    1: it was counted

return {redis.call('SREM', pairing_wrong, use)}
