// What the client must do, whatever it runs in: node.test.mjs plays it in
// Node.js and the tests in test/browser in Chromium, one after the other, each
// with its own count of calls of the backend.
//
// A scenario gets the module of the client and a stage (test/internal/stage).

const chat = '/v1/chat/completions';
const question = { model: 'sim', stream: true, messages: [{ role: 'user', content: 'hi' }] };

export class Stage {
  constructor(base, control, name) {
    Object.assign(this, { base, control, name });
  }

  async ask(path) {
    const response = await fetch(this.control + path, { method: 'POST' });
    if (!response.ok) throw new Error(`stage: ${path}: ${response.status}`);
    return response.json();
  }

  cut = () => this.ask('/cut');
  freeze = () => this.ask('/freeze');
  reload = () => this.ask('/reload');
  kill = () => this.ask('/kill');
  start = () => this.ask('/start');
  calls = () => this.ask(`/calls?case=${this.name}`);
  cancelled = () => this.ask(`/cancelled?case=${this.name}`);
  text = n => this.ask(`/text?n=${n}`);

  // client returns a client whose requests are this scenario's.
  client({ createClient }, options, headers) {
    return createClient({ base: this.base, headers: { 'X-Case': this.name, ...headers }, ...options });
  }

  // until waits for something that will be so.
  async until(what, condition) {
    for (const end = Date.now() + 10_000; Date.now() < end; await sleep(20)) if (await condition()) return;
    throw new Error(`not within 10 s: ${what}`);
  }
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

export function equal(got, want, what) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)];
  if (a !== b) throw new Error(`${what} is\n${a}\nand not\n${b}`);
}

// fails awaits the error of a promise.
async function fails(promise, want) {
  const error = await promise.then(value => { throw new Error(`no error, but ${JSON.stringify(value)}`); }, e => e);
  for (const [name, value] of Object.entries(want)) equal(error[name], value, `${name} of ${error}`);
  return error;
}

// read reads a stream to its end and checks that its ids rise.
async function read(stream, each = () => {}) {
  const got = { text: '', reasoning: '', tools: [], deltas: 0 };
  let last = 0;
  for await (const delta of stream) {
    const index = +stream.lastEventId.split(':').at(-1);
    if (delta.type !== 'done' || index) {
      if (index <= last) throw new Error(`event ${stream.lastEventId} after ${last}`);
      last = index;
    }
    got.deltas++;
    if (delta.type === 'text') got.text += delta.text;
    if (delta.type === 'reasoning') got.reasoning += delta.text;
    if (delta.type === 'tool_call') {
      const tool = (got.tools[delta.index] ??= { name: delta.name, arguments: '' });
      tool.arguments += delta.arguments;
    }
    if (delta.type === 'done') got.finish = delta.finish_reason;
    await each(got, delta);
  }
  return got;
}

// at runs a step when so many deltas have come.
const at = (n, step) => async got => { if (got.deltas === n) await step(); };

export const scenarios = {
  async 'a whole response'(lib, stage) {
    const stream = stage.client(lib, {}, { 'X-Sim-Reasoning': '5' }).post(chat, { ...question, stream_options: { include_usage: true } });
    const got = await read(stream);
    equal(got.text, await stage.text(60), 'text');
    equal(got.reasoning, await stage.ask('/reasoning?n=5'), 'reasoning');
    equal(got.finish, 'stop', 'finish reason');
    equal(stream.result.usage?.output_tokens, 65, 'tokens');
    equal(stream.lastEventId, `${stream.id}:66`, 'last event');
  },

  async 'text alone'(lib, stage) {
    equal(await stage.client(lib).post(chat, JSON.stringify(question)).text(), await stage.text(60), 'text');
  },

  async 'a tool call'(lib, stage) {
    const tools = [{ type: 'function', function: { name: 'get_weather', parameters: {} } }];
    const got = await read(stage.client(lib).post(chat, { ...question, tools }));
    equal(got.finish, 'tool_calls', 'finish reason');
    equal(got.tools[0].name, 'get_weather', 'name');
    equal(JSON.parse(got.tools[0].arguments).city, 'Zürich', 'city');
  },

  async 'many cuts'(lib, stage) {
    // six seconds, of which the waits are four and a half at most
    const retries = [];
    const client = stage.client(lib, { onRetry: retry => retries.push(retry) }, { 'X-Sim-Tokens': '600' });
    const stream = client.post(chat, question);
    const got = await read(stream, async ({ deltas }) => { if ([5, 10, 15].includes(deltas)) await stage.cut(); });
    equal(got.text, await stage.text(600), 'text');
    equal(await stage.calls(), 1, 'calls');
    if (retries.length < 3) throw new Error(`${retries.length} retries`);
    // each came further than the one before
    equal([...new Set(retries.map(retry => retry.attempt))], [1], 'attempts');
  },

  async 'cut before the first event'(lib, stage) {
    const client = stage.client(lib, {}, { 'X-Sim-TTFT': '1s' });
    const reading = read(client.post(chat, question));
    await stage.until('the backend is asked', stage.calls);
    await stage.cut();
    equal((await reading).text, await stage.text(60), 'text');
    equal(await stage.calls(), 1, 'calls');
  },

  async 'cut before anything came'(lib, stage) {
    // without heartbeats not even the id is known
    const client = stage.client(lib, {}, { 'X-Sim-TTFT': '1s' });
    const reading = read(client.post('/one' + chat, question));
    await stage.until('the backend is asked', stage.calls);
    await stage.cut();
    equal((await reading).text, await stage.text(60), 'text');
    equal(await stage.calls(), 1, 'calls');
  },

  async 'a reload'(lib, stage) {
    const retries = [];
    const client = stage.client(lib, { onRetry: retry => retries.push({ ...retry, at: Date.now() }) }, { 'X-Sim-Tokens': '200' });
    let back;
    const got = await read(client.post(chat, question), async got => {
      if (retries.length && !back) back = Date.now();
      await at(10, stage.reload)(got);
    });
    equal(got.text, await stage.text(200), 'text');
    equal(await stage.calls(), 1, 'calls');
    equal(retries.length, 1, 'retries');
    const [{ delay, at: when }] = retries;
    if (delay < 100 || delay > 600) throw new Error(`the server says 300 ms, more or less, and the client waits ${delay}`);
    if (back - when < delay - 5) throw new Error(`back after ${back - when} ms of ${delay}`);
  },

  async 'the process is killed'(lib, stage) {
    const client = stage.client(lib, {}, { 'X-Sim-Tokens': '150' });
    const error = await fails(read(client.post(chat, question), at(10, async () => {
      await stage.kill();
      await stage.start();
    })), { name: 'StreamError', code: 'unknown_response', status: 404 });
    equal(error instanceof lib.StreamError, true, 'class');
    equal(await stage.calls(), 1, 'calls');
    equal(await client.post(chat, question).text(), await stage.text(150), 'text of the next one');
  },

  async 'down for a while'(lib, stage) {
    await stage.kill();
    const reading = stage.client(lib).post(chat, question).text();
    await sleep(700);
    await stage.start();
    equal(await reading, await stage.text(60), 'text');
    equal(await stage.calls(), 1, 'calls');
  },

  async '429 of the limit'(lib, stage) {
    // Retry-After comes from how fast answers end, which is known after some.
    for (let i = 0; i < 4; i++) await stage.client(lib, {}, { 'X-Sim-Tokens': '1' }).post('/one' + chat, question).text();
    const client = stage.client(lib, {}, { 'X-Sim-Tokens': '100' });
    const first = client.post('/one' + chat, question);
    let second;
    const retries = [];
    equal((await read(first, at(1, () => {
      second = client.post('/one' + chat, question, { onRetry: retry => retries.push(retry) }).text();
    }))).finish, 'stop', 'first');
    equal(await second, await stage.text(100), 'second');
    const { code, status, retryAfter } = retries[0].error;
    equal([code, status], ['too_many_streams', 429], 'refusal');
    if (!(retryAfter >= 1) || retries[0].delay < retryAfter * 1000) throw new Error(`Retry-After ${retryAfter}, delay ${retries[0].delay}`);
  },

  async '503 with Retry-After'(lib, stage) {
    const retries = [];
    const begin = Date.now();
    const client = stage.client(lib, { onRetry: retry => retries.push(retry) }, { 'X-Refuse': '2' });
    equal(await client.post(chat, question).text(), await stage.text(60), 'text');
    equal(retries.map(({ attempt, error }) => [attempt, error.status, error.retryAfter]), [[1, 503, 1], [2, 503, 1]], 'retries');
    if (Date.now() - begin < 2000) throw new Error('sooner than the server said');
  },

  async 'retries end'(lib, stage) {
    const client = stage.client(lib, { retries: 1 }, { 'X-Refuse': '9' });
    await fails(client.post(chat, question).text(), { status: 503, retryAfter: 1, code: 'overloaded', message: 'not now' });
    equal(await stage.calls(), 2, 'calls');
  },

  async 'other statuses are final'(lib, stage) {
    const client = stage.client(lib, {}, { 'X-Refuse': '1', 'X-Refuse-Status': '500' });
    await fails(client.post(chat, question).text(), { status: 500, code: 'overloaded' });
    equal(await stage.calls(), 1, 'calls');
  },

  async 'too many clients'(lib, stage) {
    const client = stage.client(lib, {}, { 'X-Sim-Tokens': '2000' });
    const first = client.post(chat, question);
    let retries = 0;
    let follower;
    await read(first, at(1, async () => {
      const others = Array.from({ length: 3 }, () => read(client.follow(first.id)));
      await sleep(300); // until they are there; sooner, there is room
      await fails(client.post(chat, question, { retries: 0 }).text(), { status: 503, code: 'too_many_clients', retryAfter: 1 });
      follower = read(client.follow(first.id, { onRetry: () => retries++ }));
      await sleep(300);
      await first.cancel();
      await Promise.all(others);
    }));
    equal((await follower).finish, 'cancelled', 'end of the follower');
    equal(retries > 0, true, 'it was sent away');
  },

  async 'abort leaves'(lib, stage) {
    const client = stage.client(lib, {}, { 'X-Sim-Tokens': '100' });
    const controller = new AbortController();
    const stream = client.post(chat, question, { signal: controller.signal });
    await fails(read(stream, at(5, () => controller.abort())), { name: 'AbortError' });
    equal(await client.follow(stream.id).text(), await stage.text(100), 'text of a follower');
    equal(await stage.calls(), 1, 'calls');
  },

  async 'abort before and between'(lib, stage) {
    const reason = new Error('enough');
    await fails(stage.client(lib).post(chat, question, { signal: AbortSignal.abort(reason) }).text(), { message: 'enough' });
    equal(await stage.calls(), 0, 'calls');
    const controller = new AbortController();
    const begin = Date.now();
    const client = stage.client(lib, { onRetry: () => controller.abort(reason) }, { 'X-Refuse': '9' });
    await fails(client.post(chat, question, { signal: controller.signal }).text(), { message: 'enough' });
    if (Date.now() - begin > 900) throw new Error('it waits out the delay');
  },

  async 'break leaves'(lib, stage) {
    const stream = stage.client(lib, {}, { 'X-Sim-Interval': '20ms' }).post('/plain' + chat, question, { resume: false });
    for await (const delta of stream) if (delta.type === 'text') break;
    await stage.until('the upstream is cancelled', stage.cancelled);
  },

  async 'cancel'(lib, stage) {
    const client = stage.client(lib, {}, { 'X-Sim-Tokens': '2000' });
    const stream = client.post(chat, question);
    let follower;
    const got = await read(stream, at(5, async () => {
      follower = read(client.follow(stream.id));
      equal((await stream.cancel()).status, 'cancelled', 'answer');
    }));
    equal(got.finish, 'cancelled', 'end');
    equal(stream.result.finish_reason, 'cancelled', 'result');
    equal((await follower).finish, 'cancelled', 'end of the follower');
    await stage.until('the upstream is cancelled', stage.cancelled);
    equal((await client.cancel(stream.id)).status, 'cancelled', 'once more');
  },

  async 'cancel before the first event'(lib, stage) {
    const stream = stage.client(lib, {}, { 'X-Sim-TTFT': '5s' }).post('/one' + chat, question, { prefix: '/one/llm' });
    const reading = read(stream);
    await stage.until('the backend is asked', stage.calls);
    equal((await stream.cancel()).status, 'cancelled', 'answer');
    equal((await reading).finish, 'cancelled', 'end');
    await stage.until('the upstream is cancelled', stage.cancelled);
  },

  async 'cancel between two tries'(lib, stage) {
    const begin = Date.now();
    let stream;
    const client = stage.client(lib, { onRetry: () => { stopping = stream.cancel(); } }, { 'X-Refuse': '9' });
    let stopping;
    stream = client.post(chat, question);
    equal((await read(stream)).finish, 'cancelled', 'end');
    await stopping;
    equal(await stage.calls(), 1, 'calls');
    if (Date.now() - begin > 900) throw new Error('it waits out the delay');
  },

  async 'cancel by another'(lib, stage) {
    const client = stage.client(lib, {}, { 'X-Sim-TTFT': '5s', 'X-Chat-Id': 'other' });
    const reading = read(client.post(chat, question));
    for await (const event of client.channel('other')) {
      if (event.type === 'started') await client.cancel(event.response_id);
      if (event.type === 'ended') break;
    }
    equal((await reading).finish, 'cancelled', 'end');
  },

  async 'follow from an event'(lib, stage) {
    const client = stage.client(lib);
    const stream = client.post(chat, question);
    await read(stream);
    const whole = await stage.text(60);
    equal(await client.follow(stream.id).text(), whole, 'from the start');
    equal(await client.follow(`${stream.id}:0`).text(), whole, 'from 0');
    const rest = await client.follow(`${stream.id}:10`).text();
    equal(await stage.text(10) + rest, whole, 'from 10');
    equal((await read(client.post(chat, question, { lastEventId: `${stream.id}:10` }))).text, rest, 'POST from 10');
    equal((await read(client.follow(stream.lastEventId))).deltas, 0, 'deltas after the end');
    await fails(client.follow('0123456789012345678901').text(), { code: 'unknown_response', status: 404 });
    await fails(client.follow(`${stream.id}:99`).text(), { code: 'bad_cursor', status: 400 });
    equal(await stage.calls(), 1, 'calls');
  },

  async 'the same key'(lib, stage) {
    // what a page does that is reloaded before the first event
    const client = stage.client(lib);
    const options = { idempotencyKey: `key of ${stage.name}` };
    const [first, second] = [client.post(chat, question, options), client.post(chat, question, options)];
    equal(await Promise.all([first.text(), second.text()]), Array(2).fill(await stage.text(60)), 'texts');
    equal(first.id, second.id, 'id');
    equal(await stage.calls(), 1, 'calls');
    await fails(client.post(chat, { ...question, n: 2 }, options).text(), { code: 'idempotency_mismatch', status: 422 });
  },

  async 'a channel'(lib, stage) {
    const name = 'a channel/with ü';
    const client = stage.client(lib, {}, { 'X-Chat-Id': 'a channel' });
    const texts = {};
    const log = [];
    let started;
    const ready = new Promise(resolve => { started = resolve; });
    const following = (async () => {
      for await (const event of client.channel('a channel', { follow: true })) {
        if (event.type === 'text') texts[event.response_id] = (texts[event.response_id] ?? '') + event.text;
        else log.push(event.type);
        started();
        if (log.filter(type => type === 'ended').length === 2) return;
      }
    })();
    const first = client.post(chat, question);
    const second = client.post(chat, question);
    const reading = [first.text(), second.text()];
    await ready;
    await sleep(100);
    await stage.cut();
    await sleep(100);
    await Promise.all([...reading, following]);
    const whole = await stage.text(60);
    equal(texts, { [Object.keys(texts)[0]]: whole, [Object.keys(texts)[1]]: whole }, 'texts');
    equal(texts[first.id] === whole && texts[second.id] === whole, true, 'both are there');
    equal(log.sort(), ['done', 'done', 'ended', 'ended', 'started', 'started'], 'events');
    equal(await stage.calls(), 2, 'calls');
    // a name is part of a path
    const listening = client.channel(name, { signal: AbortSignal.timeout(300) });
    await fails(listening[Symbol.asyncIterator]().next(), { name: 'TimeoutError' });
  },

  async 'what runs on a channel'(lib, stage) {
    const client = stage.client(lib, {}, { 'X-Chat-Id': 'current', 'X-Sim-Tokens': '200' });
    equal((await read(client.current('current'))).deltas, 0, 'deltas where nothing runs');
    const stream = client.post(chat, question);
    let second;
    await read(stream, at(20, () => { second = read(client.current('current'), at(30, stage.cut)); }));
    equal((await second).text, await stage.text(200), 'text');
    equal(await stage.calls(), 1, 'calls');
  },

  async 'an error in mid-stream'(lib, stage) {
    const client = stage.client(lib, {}, { 'X-Sim-Fault': 'die', 'X-Sim-Fault-At': '5' });
    const stream = client.post(chat, question);
    const error = await fails(stream.text(), { code: 'upstream_truncated', type: 'api_error', status: undefined });
    equal(error.responseId, stream.id, 'response');
    equal(await stage.calls(), 1, 'calls');
  },

  async 'not a stream, or not text'(lib, stage) {
    const other = new Stage(stage.base, stage.control, 'json');
    await fails(other.client(lib).post(chat, question).text(), { code: 'no_stream' });
    await fails(stage.client(lib).post('/openai' + chat, question).text(), { code: 'wrong_dialect' });
    equal(await stage.calls(), 1, 'calls');
  },

  async 'a route without resume'(lib, stage) {
    for (const resume of [true, false]) {
      const client = stage.client(lib, { resume }, { 'X-Sim-Tokens': '300' });
      const error = await fails(read(client.post('/plain' + chat, question), at(10, stage.cut)), {});
      equal(await stage.calls(), resume ? 1 : 2, `calls after ${error}`);
    }
  },

  async 'a silent connection'(lib, stage) {
    const retries = [];
    const client = stage.client(lib, { idleTimeout: 1000, onRetry: retry => retries.push(retry.error.code) }, { 'X-Sim-Tokens': '200' });
    const got = await read(client.post(chat, question), at(10, stage.freeze));
    equal(got.text, await stage.text(200), 'text');
    equal(retries, ['idle'], 'retries');
    equal(await stage.calls(), 1, 'calls');
  },

  async 'headers are asked for anew'(lib, stage) {
    let asked = 0;
    const client = lib.createClient({ base: stage.base, headers: async () => ({ 'X-Case': stage.name, 'X-Asked': String(++asked) }) });
    equal((await read(client.post(chat, question), at(5, stage.cut))).finish, 'stop', 'end');
    equal(asked, 2, 'requests');
    await fails(stage.client(lib, { headers: () => { throw new Error('no token'); } }).post(chat, question).text(), { message: 'no token' });
  },
};
