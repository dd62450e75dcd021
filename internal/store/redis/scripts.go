package redis

import "github.com/redis/rueidis"

// The fields of a response's hash.
const (
	metaFence   = "f"
	metaLast    = "l" // index of the last event
	metaStatus  = "s"
	metaCancel  = "c" // somebody wants it to be cancelled
	metaReplica = "r" // that produces it, or has ended it
	metaScope   = "x"
	metaOwner   = "o"
	metaChannel = "n"
	metaDialect = "d"
	metaStarted = "t" // in milliseconds
	metaKeep    = "k" // likewise
	metaAbout   = "a" // JSON
	metaClaim   = "p"
	metaBody    = "b" // of the call
	// "w" is set in a cluster where it is or was followed
)

// The first word of every answer of a script.
const (
	answerOK      = "ok"
	answerUnknown = "unknown"
	answerExpired = "expired"
	answerFenced  = "fenced"
	answerGap     = "gap"
)

// What all scripts that write have in common: the first write is one that Redis
// refuses when it is out of memory, so that a script happens whole or not at all.
//
// notice adds a notice to a channel. keys[i] is its hash, keys[i+1] its log, and
// argv from j on are: the message topic, a new epoch, how long to keep it, the id
// of the response, the kind of the notice, its text. What was not announced is
// passed over, and so is what was already.
const noticeFunction = `
local function notice(i, j)
	local meta, log = KEYS[i], KEYS[i+1]
	local topic, epoch, ttl, field, kind, text =
		ARGV[j], ARGV[j+1], tonumber(ARGV[j+2]), 'r' .. ARGV[j+3], ARGV[j+4], ARGV[j+5]
	local announced = redis.call('HEXISTS', meta, field) == 1
	if announced == (kind == 's') then return end
	if redis.call('HSETNX', meta, 'e', epoch) == 1 then
		redis.call('DEL', log)
	end
	local n = redis.call('HINCRBY', meta, 'n', 1)
	if kind == 's' then redis.call('HSET', meta, field, n) end
	if kind == 'e' then redis.call('HDEL', meta, field) end
	redis.call('XADD', log, 'MAXLEN', '~', 4096, n .. '-0', 'n', text)
	if redis.call('PTTL', meta) < ttl then
		redis.call('PEXPIRE', meta, ttl)
		redis.call('PEXPIRE', log, ttl)
	end
	redis.call('PUBLISH', topic, redis.call('HGET', meta, 'e') .. '.' .. n .. ' ' .. text)
end
`

// KEYS: hash, log. ARGV: those of notice.
var noticeScript = rueidis.NewLuaScript(noticeFunction + `
notice(1, 1)
return {'ok'}
`)

// KEYS: hash, stream. ARGV: replica, time to live, fields and values.
var beginScript = rueidis.NewLuaScript(`
local m = redis.call('HMGET', KEYS[1], 'f', 'l', 'r', 's')
if m[1] then
	if m[3] ~= ARGV[1] or m[4] ~= 'in_progress' then return {'fenced'} end
	return {'ok', m[1], m[2]}
end
redis.call('HSET', KEYS[1], 'f', '1', 'l', '0', 'r', ARGV[1], 's', 'in_progress', unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('DEL', KEYS[2])
return {'ok', '1', '0'}
`)

// KEYS: hash, stream, and where there is a channel its two. ARGV: fence, first,
// last, batch, time stamp, topic, time to live, about, then those of notice.
var appendScript = rueidis.NewLuaScript(noticeFunction + `
local m = redis.call('HMGET', KEYS[1], 'f', 'l', 'c', 's', 'w')
if not m[1] then return {'unknown'} end
if m[1] ~= ARGV[1] or m[4] ~= 'in_progress' then return {'fenced'} end
local last = tonumber(m[2])
if tonumber(ARGV[3]) <= last then return {'ok', m[2], m[3] or '', tonumber(m[5] or 0)} end
if tonumber(ARGV[2]) ~= last + 1 then return {'gap', m[2]} end
redis.call('XADD', KEYS[2], ARGV[3] .. '-0', 'b', ARGV[4])
if last == 0 then redis.call('PEXPIRE', KEYS[2], ARGV[7]) end
redis.call('HSET', KEYS[1], 'l', ARGV[3])
if ARGV[8] ~= '' then redis.call('HSET', KEYS[1], 'a', ARGV[8]) end
local followers = redis.call('PUBLISH', ARGV[6], ARGV[5] .. ARGV[4])
if #KEYS > 2 then notice(3, 9) end
return {'ok', ARGV[3], m[3] or '', followers + (m[5] or 0)}
`)

// KEYS: hash, stream, compact, tombstone, and where there is a channel its two.
// ARGV: fence, first, last, batch, time stamp, topic, about, replica, status,
// compact, keep, whose, how long the tombstone stands, then those of notice.
var finishScript = rueidis.NewLuaScript(noticeFunction + `
local m = redis.call('HMGET', KEYS[1], 'f', 'l', 'r', 's')
if not m[1] then return {'unknown'} end
if m[4] ~= 'in_progress' then
	if m[3] == ARGV[8] then return {'ok', m[2], '', 0} end
	return {'fenced'}
end
if m[1] ~= ARGV[1] then return {'fenced'} end
if tonumber(ARGV[2]) ~= m[2] + 1 then return {'gap', m[2]} end
local keep = tonumber(ARGV[11])
if ARGV[10] ~= '' then
	redis.call('SET', KEYS[3], ARGV[10], 'PX', keep + 1000)
	redis.call('DEL', KEYS[2])
else
	redis.call('XADD', KEYS[2], ARGV[3] .. '-0', 'b', ARGV[4])
	redis.call('PEXPIRE', KEYS[2], keep + 1000)
end
redis.call('HSET', KEYS[1], 'f', m[1] + 1, 'l', ARGV[3], 'r', ARGV[8], 's', ARGV[9])
if ARGV[7] ~= '' then redis.call('HSET', KEYS[1], 'a', ARGV[7]) end
redis.call('PEXPIRE', KEYS[1], keep)
redis.call('SET', KEYS[4], ARGV[12], 'PX', ARGV[13])
redis.call('PUBLISH', ARGV[6], ARGV[5] .. ARGV[4])
if #KEYS > 4 then notice(5, 14) end
return {'ok', ARGV[3], '', 0}
`)

// KEYS: hash, stream, compact, tombstone. ARGV: topic. It needs no memory.
var discardScript = rueidis.NewLuaScript(`
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
redis.call('PUBLISH', ARGV[1], '')
return {'ok'}
`)

// KEYS: hash. ARGV: what begins the topic of a replica, id. The message goes out
// where there is no memory for the wish.
var cancelScript = rueidis.NewLuaScript(`
local m = redis.call('HMGET', KEYS[1], 's', 'r')
if m[1] == 'in_progress' then
	redis.pcall('HSET', KEYS[1], 'c', '1')
	redis.call('PUBLISH', ARGV[1] .. m[2], ARGV[2])
end
return {'ok'}
`)

// KEYS: hash.
var followScript = rueidis.NewLuaScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then redis.pcall('HSET', KEYS[1], 'w', '1') end
return {'ok'}
`)

// KEYS: hash, stream, compact, tombstone. ARGV: index. It returns last index,
// status, and batches: at most 1,024, and not much more than 256 KiB.
var readScript = rueidis.NewLuaScriptReadOnly(`
local m = redis.call('HMGET', KEYS[1], 'l', 's')
if not m[1] then
	if redis.call('EXISTS', KEYS[4]) == 1 then return {'expired'} end
	return {'unknown'}
end
local answer = {'ok', m[1], m[2]}
local compact = redis.call('GET', KEYS[3])
if compact then
	answer[4] = compact
	return answer
end
local from, size = ARGV[1] + 1, 0
while #answer < 1024 and size < 262144 do
	local entries = redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', 64)
	for _, entry in ipairs(entries) do
		answer[#answer+1] = entry[2][2]
		size = size + #entry[2][2]
		from = tonumber(string.match(entry[1], '^%d+')) + 1
	end
	if #entries < 64 then break end
end
return answer
`)

// KEYS: hash of a key. ARGV: request, id, body, the id that may be replaced, time
// to live. It returns whose call it is: id and body.
var claimScript = rueidis.NewLuaScript(`
local claim = redis.call('HGET', KEYS[1], ARGV[1])
if claim then
	local id, body = string.match(claim, '^(%S+) (.*)$')
	if id ~= ARGV[4] and id ~= ARGV[2] then return {'ok', id, body} end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return {'ok', ARGV[2], ARGV[3]}
`)

// KEYS: hash of a key. ARGV: request, id.
var freeScript = rueidis.NewLuaScript(`
local claim = redis.call('HGET', KEYS[1], ARGV[1])
if claim and string.match(claim, '^%S+') == ARGV[2] then
	redis.call('HDEL', KEYS[1], ARGV[1])
end
return {'ok'}
`)

// KEYS: hash, log. ARGV: the number of the last notice that was had, or empty,
// and how many are wanted. It returns epoch, number of the last notice, number of
// the first one that is returned, how many are returned, they themselves, and the
// fields and values of the hash.
var channelScript = rueidis.NewLuaScriptReadOnly(`
local epoch = redis.call('HGET', KEYS[1], 'e')
if not epoch then return {'unknown'} end
local answer = {'ok', epoch, redis.call('HGET', KEYS[1], 'n'), '0', '0'}
local from = '-'
if ARGV[1] ~= '' then from = ARGV[1] + 1 end
local entries = redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', ARGV[2])
if #entries > 0 then answer[4] = string.match(entries[1][1], '^%d+') end
answer[5] = tostring(#entries)
for _, entry in ipairs(entries) do answer[#answer+1] = entry[2][2] end
for _, value in ipairs(redis.call('HGETALL', KEYS[1])) do answer[#answer+1] = value end
return answer
`)
