-- Stands in front of the scripts after which the stream of deletions must be there; it is not a script by itself.

-- Make a stream without entries where there is none: where it is missing, it was lost (`require_keys` of meta.py). No
-- entry of a deletion has an id below 1-0.
local function lasting(stream)
  if redis.call('EXISTS', stream) == 1 then return end
  redis.call('XADD', stream, '0-1', 'forget', '')
  redis.call('XDEL', stream, '0-1')
end
