-- Stands in front of the scripts that write many fields or keep uploaded strings; it is not a script by itself.

-- `unpack` fails beyond some 8,000 values, so long ranges of arguments go in slices. An even number: no field may be
-- parted from its value.
local SLICE = 4000
local function each(command, key, first, last)
  for from = first, last, SLICE do
    redis.call(command, key, unpack(ARGV, from, math.min(from + SLICE - 1, last)))
  end
end

-- -2: expired before the commit. -1: without an end, so another commit has kept it, and it is not this plan's.
local function uploaded(first, last)
  for i = first, last do
    if redis.call('PTTL', KEYS[i]) <= 0 then return false end
  end
  return true
end

local function keep(first, last)
  for i = first, last do redis.call('PERSIST', KEYS[i]) end
end
