"""The Lua scripts by which one of several loops leads, and by which its orders replace those before."""

_KNOWN = """
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local known = redis.call('HMGET', KEYS[2], 'run', 'epoch', 'fence')
local epoch, fence = known[2] or '', tonumber(known[3] or '0')
"""

ELECT = f"""
-- KEYS: the lock; the fence. ARGV: name of the loop, milliseconds that the lock is held, the largest fencing number that the
-- loop knows, an epoch to begin if Redis has none. Returns: name of the leader, epoch, fencing number.
{_KNOWN}
local holder = redis.call('GET', KEYS[1])
local is_known = known[1] == run
if holder and is_known and holder ~= ARGV[1] then
    return {{holder, epoch, fence}}
end
if not (holder and is_known) then
    -- Nobody leads, or this Redis was started anew, perhaps from an old file: who led before has to learn that it does not.
    epoch = is_known and epoch or ARGV[4]
    fence = math.max(fence, tonumber(ARGV[3])) + 1
    redis.call('HSET', KEYS[2], 'run', run, 'epoch', epoch, 'fence', string.format('%.0f', fence))
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {{ARGV[1], epoch, fence}}
"""

INSTALL = f"""
-- KEYS: the lock; the fence; the orders. ARGV: epoch, fencing number, the version that the loop installed last, milliseconds
-- that the orders hold, then pairs of a field and its value; without pairs the orders that are there hold for longer.
-- Returns: 1 and the version; 0 if another loop leads by now, or this Redis does not know this one.
{_KNOWN}
if known[1] ~= run or epoch ~= ARGV[1] or fence ~= tonumber(ARGV[2]) then
    return {{0, 0}}
end
local version = tonumber(redis.call('HGET', KEYS[3], 'version') or '0')
if #ARGV > 4 then
    version = math.max(version, tonumber(ARGV[3])) + 1
    redis.call('DEL', KEYS[3])
    redis.call('HSET', KEYS[3], 'epoch', epoch, 'fence', ARGV[2], 'version', string.format('%.0f', version))
    for i = 5, #ARGV, 2 do
        redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
    end
end
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return {{1, version}}
"""

RESIGN = """
-- KEYS: the lock. ARGV: name of the loop. Frees the lock if this loop holds it.
if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('DEL', KEYS[1])
end
"""
