-- In front of the scripts that write many fields or keep uploaded strings; no script by itself.
-- Lua passes a few thousand values to a function at most, so long ranges of arguments go in slices.

local SLICE = 4000
local function each(command, key, first, last)
  for from = first, last, SLICE do
    redis.call(command, key, unpack(ARGV, from, math.min(from + SLICE - 1, last)))
  end
end
local function uploaded(first, last)
  for i = first, last do
    if redis.call('PTTL', KEYS[i]) <= 0 then return false end
  end
  return true
end
local function keep(first, last)
  for i = first, last do redis.call('PERSIST', KEYS[i]) end
end
