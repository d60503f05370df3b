"""The Lua scripts by which processes lease dollars. Redis knows the sums; the journal knows who was granted what."""

_IS_CURRENT = """
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local known = redis.call('HMGET', KEYS[1], 'run', 'generation')
local is_current = known[1] == run and known[2] == ARGV[1]
"""

GRANT = f"""
-- KEYS: the fleet's money. ARGV: generation, tenant, cap, wanted, processes that share (or
-- 1 / p, if this one may count on the part p), day ('' for the server's).
-- Amounts in billionths of a dollar. Returns: 1 if granted, 0 if the cap does not allow it, -1 if this Redis does not know what
-- is spent; the slice; the rest of the cap; the day.
{_IS_CURRENT}
local day = ARGV[6]
if day == '' then
    day = string.format('%.0f', math.floor(redis.call('TIME')[1] / 86400))
end
if not is_current then
    return {{-1, 0, 0, day}}
end
local field = 'day:' .. day .. ':' .. ARGV[2]
local cap, wanted, members = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local rest = cap - tonumber(redis.call('HGET', KEYS[1], field) or '0')
if wanted > rest then
    return {{0, 0, rest, day}}
end
local slice = math.max(math.min(math.floor(cap / members), math.floor(rest / (2 * members))), wanted)
redis.call('HINCRBY', KEYS[1], field, string.format('%.0f', slice))
return {{1, slice, rest - slice, day}}
"""

GIVE_BACK = f"""
-- KEYS: the fleet's money. ARGV: generation, tenant, day, amount. Returns 1, or 0 if this Redis knows it already or not at all.
{_IS_CURRENT}
if not is_current then
    return 0
end
redis.call('HINCRBY', KEYS[1], 'day:' .. ARGV[3] .. ':' .. ARGV[2], '-' .. ARGV[4])
return 1
"""

RESTORE = """
-- KEYS: the fleet's money. ARGV: generation, then pairs of a field and a sum. Returns 1, or 0 if a later one came first.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local known = redis.call('HMGET', KEYS[1], 'run', 'generation')
if known[1] == run and tonumber(known[2]) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'run', run, 'generation', ARGV[1])
for i = 2, #ARGV, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
return 1
"""
