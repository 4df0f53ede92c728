-- Stands in front of the scripts that only the leading scheduler may run; it is not a script by itself.
-- ARGV 1 and 2 of these are the leader's fencing token and its name.

-- Both: a Redis that was set back may give one token twice, and a name alone may lead again after somebody else did.
local function leads(fence, lease)
  return (redis.call('GET', fence) or '0') == ARGV[1] and redis.call('GET', lease) == ARGV[2]
end
