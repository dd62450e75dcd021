// How the client reads bytes and headers, from answers that are made up here.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createClient } from '../../client/index.js';

const id = '5kQ0c1wDWnVYQ2zTnM8jXb';
const encoder = new TextEncoder();

// answer is a stream of server-sent events in the pieces given; it breaks at
// the end where it is said to.
function answer(pieces, { broken, headers, status = 200 } = {}) {
  const left = [...pieces];
  const body = new ReadableStream({
    pull(controller) {
      const piece = left.shift();
      if (piece !== undefined) controller.enqueue(typeof piece === 'string' ? encoder.encode(piece) : piece);
      else if (broken) controller.error(new TypeError('network'));
      else controller.close();
    },
  }, { highWaterMark: 0 });
  return new Response(status === 204 ? null : body, { status, headers: { 'Content-Type': 'text/event-stream', ...headers } });
}

// client gives answers in turn, and keeps the requests.
function client(answers, options) {
  const requests = [];
  const fetch = async request => {
    requests.push({
      method: request.method, url: request.url, body: await request.text(),
      cursor: request.headers.get('last-event-id'), key: request.headers.get('idempotency-key'),
    });
    const next = answers.shift();
    if (next instanceof Error) throw next;
    return next;
  };
  return { requests, ...createClient({ base: 'http://llm', fetch, retries: 3, ...options }) };
}

async function all(stream) {
  const list = [];
  for await (const delta of stream) list.push(delta);
  return list;
}

const text = (n, value) => `id: ${id}:${n}\ndata: {"text":"${value}"}\n\n`;
const done = n => `id: ${id}:${n}\nevent: done\ndata: {"finish_reason":"stop"}\n\n`;
const end = { type: 'done', finish_reason: 'stop' };

test('every way to write a line, cut everywhere', async () => {
  const frames = `: ping\n${text(1, 'é😀')}: ping\nid: ${id}:2\nevent: reasoning\ndata:{"text":\ndata: "b"}\n\n${done(3)}`;
  const want = [{ type: 'text', text: 'é😀' }, { type: 'reasoning', text: 'b' }, end];
  for (const newline of ['\n', '\r\n', '\r']) {
    const bytes = encoder.encode('\uFEFF' + frames.replaceAll('\n', newline) + (newline === '\r' ? ':' : ''));
    for (let at = 0; at <= bytes.length; at++) {
      assert.deepEqual(await all(client([answer([bytes.slice(0, at), bytes.slice(at)])]).follow(id)), want, `${JSON.stringify(newline)} ${at}`);
    }
    assert.deepEqual(await all(client([answer(Array.from(bytes, byte => Uint8Array.of(byte)))]).follow(id)), want);
  }
});

test('nothing comes twice, and half a frame is none', async () => {
  const c = client([
    answer([text(1, 'a'), text(2, 'b'), `id: ${id}:3\ndata: {"text":"c"}\n`], { broken: true }),
    answer([text(2, 'b'), text(4, 'cd'), done(5)]),
  ]);
  const stream = c.post('/v1', { a: 1 });
  assert.deepEqual(await all(stream), [{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }, { type: 'text', text: 'cd' }, end]);
  assert.equal(stream.lastEventId, `${id}:5`);
  assert.deepEqual(c.requests.map(({ body, cursor }) => [body, cursor]), [['{"a":1}', null], ['', `${id}:2`]]);
  assert.equal(c.requests[0].key, c.requests[1].key);
  assert.match(c.requests[0].key, /^[0-9a-f]{32}$/);
});

test('an id in the header is enough to come back with', async () => {
  const c = client([
    answer([': ping\n'], { broken: true, headers: { 'X-Response-Id': id } }),
    answer([text(1, 'a'), done(2)]),
  ]);
  assert.equal(await c.post('/v1', 'body').text(), 'a');
  assert.equal(c.requests[1].cursor, `${id}:0`);
});

test('another response in the middle is an error', async () => {
  const c = client([answer([text(1, 'a')], { broken: true }), answer([text(2, 'b').replace(id, 'other')])]);
  await assert.rejects(all(c.post('/v1', '')), { code: 'other_response' });
});

test('an id that is only an index is of a route without resume', async () => {
  const c = client([answer(['id: 1\ndata: {"text":"a"}\n\n'], { headers: { 'X-Response-Id': id } })]);
  await assert.rejects(all(c.post('/v1', '')), { code: 'cut' });
  assert.equal(c.requests.length, 1);
});

test('events of a later version are passed over', async () => {
  const c = client([answer([`id: ${id}:1\nevent: video\ndata: not JSON\n\n`, done(2)])]);
  const stream = c.follow(id);
  assert.deepEqual(await all(stream), [end]);
  assert.equal(stream.lastEventId, `${id}:2`);
});

test('a gap moves on', async () => {
  const c = client([answer([text(1, 'a'), `id: ${id}:9\nevent: gap\ndata: {"dropped":8}\n\n`, text(9, 'late'), done(10)])]);
  assert.deepEqual(await all(c.follow(id)), [{ type: 'text', text: 'a' }, { type: 'gap', dropped: 8 }, end]);
});

test('a reconnect frame says when, and a busy server is asked so often and no more', async () => {
  const away = (reason, ms) => answer([`id: ${id}:0\nevent: reconnect\nretry: ${ms}\ndata: {"reason":"${reason}","retry_ms":${ms}}\n\n`]);
  const delays = [];
  const options = { onRetry: retry => delays.push(retry.delay), retries: 2 };
  const reloads = client([away('reload', 5), away('reload', 6), away('reload', 7), away('reload', 8), answer([done(1)])], options);
  assert.deepEqual(await all(reloads.post('/v1', '')), [end]);
  assert.deepEqual(delays, [5, 6, 7, 8]);
  assert.deepEqual(reloads.requests.map(({ cursor }) => cursor), [null, ...Array(4).fill(`${id}:0`)]);
  await assert.rejects(all(client([away('busy', 1), away('busy', 1), away('busy', 1)], options).follow(id)), { code: 'reconnect', message: 'the server says to come back: busy' });
});

test('an event starts the count of failures anew', async () => {
  const c = client([
    answer([`id: ${id}:0\nevent: reconnect\ndata: {"reason":"reload","retry_ms":1}\n\n`]),
    ...[1, 2, 3].map(n => answer([text(n, 'a')], { broken: true })),
    answer([], { broken: true }),
  ], { retries: 1 });
  const stream = c.post('/v1', '');
  await assert.rejects(all(stream), { message: 'network' });
  assert.equal(stream.lastEventId, `${id}:3`);
  assert.equal(c.requests.length, 5);
});

test('Retry-After is in seconds or a date, and one that is too long is for the caller', async () => {
  const refused = after => new Response('', { status: 503, headers: { 'Retry-After': after } });
  const delays = [];
  const options = { onRetry: retry => delays.push(retry.delay), retries: 1 };
  await all(client([refused('0'), answer([done(1)])], options).follow(id));
  await all(client([refused(new Date(Date.now() + 1500).toUTCString()), answer([done(1)])], options).follow(id));
  assert.equal(delays[0], 0);
  assert.ok(delays[1] > 300 && delays[1] < 2000, String(delays));
  await assert.rejects(all(client([refused('3600')]).follow(id)), { status: 503, retryAfter: 3600 });
  const hopeless = new Response('', { status: 503, headers: { 'X-Should-Retry': 'false' } });
  await assert.rejects(all(client([hopeless]).follow(id)), { status: 503 });
});

test('a gateway that is in the way is asked again, but not with what is paid for', async () => {
  const gateway = () => new Response('<html>', { status: 502 });
  assert.deepEqual(await all(client([gateway(), answer([done(1)])]).follow(id)), [end]);
  await assert.rejects(all(client([gateway()]).post('/v1', '')), { status: 502, code: 'http_error' });
  const own = Response.json({ error: { type: 'timeout_error', code: 'first_token_timeout', message: 'm', response_id: id } }, { status: 504 });
  await assert.rejects(all(client([own]).follow(id)), { status: 504, code: 'first_token_timeout', type: 'timeout_error', responseId: id, message: 'm' });
});

test('without resume a request is sent once', async () => {
  const lost = client([new TypeError('fetch failed')], { resume: false });
  await assert.rejects(all(lost.post('/v1', '')), { message: 'fetch failed' });
  assert.equal(lost.requests[0].key, null);
});

test('499 is the end of a response that somebody has cancelled', async () => {
  const c = client([Response.json({ error: { code: 'cancelled' } }, { status: 499 })]);
  assert.deepEqual(await all(c.post('/v1', '')), [{ type: 'done', finish_reason: 'cancelled' }]);
});

test('204 is nothing', async () => {
  assert.deepEqual(await all(client([answer([], { status: 204 })]).current('c')), []);
});

test('a stream that was found on a channel is gone on with by its id', async () => {
  const c = client([answer([text(1, 'a')], { broken: true }), answer([done(2)])], { prefix: '/v1/llm' });
  await all(c.current('a/b'));
  assert.deepEqual(c.requests.map(({ url, cursor }) => [url, cursor]), [
    ['http://llm/v1/llm/channels/a%2Fb/current', null],
    [`http://llm/v1/llm/streams/${id}`, `${id}:1`],
  ]);
});

test('a channel has no end, and its ids are its own', async () => {
  const c = client([
    answer(['id: x.1\nevent: error\ndata: {"response_id":"r","error":{"code":"c"}}\n\n', 'event: done\ndata: {"response_id":"r"}\n\n'], { broken: true }),
    answer(['id: x.2\nevent: reconnect\ndata: {"reason":"reload","retry_ms":1}\n\n']),
    new Response('', { status: 410 }),
  ]);
  const seen = [];
  await assert.rejects((async () => { for await (const event of c.channel('c')) seen.push(event.type); })(), { status: 410 });
  assert.deepEqual(seen, ['error', 'done']);
  assert.deepEqual(c.requests.map(({ cursor }) => cursor), [null, 'x.1', 'x.2']);
});

test('a mistake of the caller is no reason to try again', async () => {
  await assert.rejects(all(createClient().post('/relative', '')), TypeError);
  assert.throws(() => createClient().post('/v1', 1n), TypeError);
});
