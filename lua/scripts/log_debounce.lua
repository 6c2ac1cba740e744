-- log_debounce: is this the first word about something in a while? The next ones are not.
-- KEYS
--   debounce   string there was a word a moment ago
-- ARGV
--   window_ms  text   how long a while is
-- RETURNS
--   is_first   int    1: yes

return {redis.call('SET', debounce, '1', 'NX', 'PX', window_ms) and 1 or 0}
