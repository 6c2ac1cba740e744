-- log_debounce: true for the first report of a subject within a time window, across all selectors.
-- KEYS
--   debounce   string exists while the window is open
-- ARGV
--   window_ms  text   length of the window
-- RETURNS
--   is_first   int    1: first report in the window

return {redis.call('SET', debounce, '1', 'NX', 'PX', window_ms) and 1 or 0}
