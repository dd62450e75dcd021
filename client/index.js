// The client of caddy-llmstream for browsers and Node.js: it reads the `text`
// dialect of llm_stream, and comes back by itself when a connection is lost.
//
// The invariant: a Stream yields every event of its response in order and once,
// or it throws. It never asks for a second generation: all its POSTs carry one
// Idempotency-Key, and Last-Event-ID from the moment that the response has an
// id, so that the server knows which generation is meant.

/** What a Stream throws, the reason of an aborted signal aside. */
export class StreamError extends Error {
  constructor(message, code, more) {
    super(message);
    this.name = 'StreamError';
    this.code = code;
    Object.assign(this, more);
  }
}

const maxDelay = 60_000;

// explain makes an error of an error object of the server.
const explain = (error, code, message, more) =>
  new StreamError(error?.message || message, error?.code || code, {
    type: error?.type,
    responseId: error?.response_id,
    upstream: error?.upstream,
    ...more,
  });

// refusal makes an error of an answer that is no stream.
async function refusal(response) {
  const { status, headers } = response;
  const body = await response.json().catch(() => {});
  const after = headers.get('retry-after');
  return explain(body?.error, 'http_error', `HTTP status ${status}`, {
    status,
    // seconds or a date
    retryAfter: after ? Math.max(0, isNaN(after) ? (Date.parse(after) - Date.now()) / 1000 : +after) : undefined,
  });
}

// parser returns a function that takes bytes and returns the frames which they
// complete, read as the HTML standard says.
function parser() {
  const decoder = new TextDecoder();
  let rest = '';
  let frame = {};
  return bytes => {
    // A CR at the end may be half of a CRLF: it waits for what follows.
    const lines = (rest + decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    const frames = [];
    rest = lines.pop();
    for (const line of lines) {
      if (line) {
        const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
        frame[name] = name === 'data' && frame.data !== undefined ? `${frame.data}\n${value}` : value;
      } else {
        if (frame.data !== undefined) frames.push(frame);
        frame = {};
      }
    }
    return frames;
  };
}

// request sends one request of a client, with headers as they are now.
async function request(options, path, init, extra, sending) {
  const headers = new Headers();
  for (const source of [extra, ...options.headers]) {
    new Headers(typeof source === 'function' ? await source() : source).forEach((value, name) => headers.set(name, value));
  }
  const { base = '', credentials = 'same-origin', fetch = globalThis.fetch } = options;
  const made = new Request(/^https?:/.test(path) ? path : base + path, { ...init, headers, credentials });
  sending?.();
  return fetch(made);
}

// control is the path of a control endpoint.
const control = (options, path) => (options.prefix ?? '/llm') + path;

async function cancel(options, path) {
  const response = await request(options, control(options, '/cancel' + path), { method: 'POST', keepalive: true });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

function randomKey() {
  // not randomUUID, which browsers have on secure origins only
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, '0')).join('');
}

// What the events are called that a Stream yields; others are for later versions.
const types = { message: 'text' };
for (const name of ['reasoning', 'refusal', 'tool_call', 'gap', 'done', 'error', 'started', 'ended']) types[name] = name;

class Stream {
  id = '';
  lastEventId = '';
  result;

  #options;
  #target;
  #iterator;
  #index = 0; // of the last event that was yielded
  #failures = 0; // in a row
  #retry = 1000; // the server's idea of how long to wait
  #told; // how long it said to wait this time
  #again; // whether what has just failed may be tried again
  #stopped = false; // it was cancelled, and there is no end to be read
  #connection = new AbortController();
  #wake = () => {};

  constructor(options, target) {
    this.#options = options;
    this.#target = target;
    const { body, channel, from = '' } = target;
    if (body !== undefined) this.idempotencyKey = options.idempotencyKey ?? randomKey();
    const [id, index] = from.split(':');
    if (!channel) this.id = id;
    if (channel || index) this.lastEventId = from;
    if (!channel && index) this.#index = +index;
  }

  [Symbol.asyncIterator]() {
    return (this.#iterator ??= this.#run());
  }

  async text() {
    let text = '';
    for await (const delta of this) if (delta.type === 'text' && !delta.choice) text += delta.text;
    return text;
  }

  async cancel() {
    const { idempotencyKey } = this;
    const ask = async () => {
      if (this.id) return cancel(this.#options, '/' + encodeURIComponent(this.id));
      if (idempotencyKey) return cancel(this.#options, '?idempotency_key=' + encodeURIComponent(idempotencyKey));
      throw new StreamError('there is nothing to cancel', 'unknown_response', { status: 404 });
    };
    try {
      return await ask();
    } catch (error) {
      if (error.status !== 404) throw error;
      // The server knows nothing of it, or not yet. The request is taken back,
      // and asked for once more in case it was admitted between the two.
      this.#stopped = true;
      this.#connection.abort();
      return await ask().catch(() => ({ response_id: this.id, status: 'cancelled' }));
    } finally {
      this.#wake();
    }
  }

  async *#run() {
    const { signal, onRetry } = this.#options;
    const leave = () => {
      this.#connection.abort();
      this.#wake();
    };
    signal?.addEventListener('abort', leave);
    try {
      while (!this.#stopped) {
        let failure;
        this.#told = undefined;
        try {
          signal?.throwIfAborted();
          if (yield* this.#read(await this.#open())) return;
          failure = new StreamError('the connection ended before the response', 'cut');
        } catch (error) {
          failure = error;
        }
        this.#connection.abort();
        signal?.throwIfAborted();
        if (failure.status === 499) this.#stopped = true; // another client has cancelled it
        if (this.#stopped) break;
        const delay = this.#delay(failure);
        onRetry?.({ error: failure, delay, attempt: this.#failures });
        await this.#sleep(delay);
      }
      this.result = { finish_reason: 'cancelled' };
      yield { ...this.result, type: 'done' };
    } finally {
      signal?.removeEventListener('abort', leave);
      this.#connection.abort();
    }
  }

  // open sends the request, so that it goes on where this client is.
  async #open() {
    const { body, channel, path } = this.#target;
    const { resume = true } = this.#options;
    const headers = { Accept: 'text/event-stream' };
    const init = { method: 'GET' };
    let target = path;
    if (this.lastEventId) headers['Last-Event-ID'] = this.lastEventId;
    if (body !== undefined) {
      init.method = 'POST';
      if (resume) headers['Idempotency-Key'] = this.idempotencyKey;
      if (this.id) headers['Last-Event-ID'] ||= this.id + ':0';
      else {
        headers['Content-Type'] = 'application/json';
        init.body = body;
      }
    } else if (this.id) {
      target = control(this.#options, '/streams/' + encodeURIComponent(this.id));
    }
    this.#connection = new AbortController();
    init.signal = this.#connection.signal;
    this.#again = false; // what fails before it is sent is the caller's mistake
    const response = await this.#alive(request(this.#options, target, init, headers, () => (this.#again = resume)));
    if (response.ok) return response;
    const error = await refusal(response);
    // Resuming costs nothing, so what a gateway says meanwhile is not final. An
    // error with a code is the server's own, and how the response has ended.
    const gateway = init.body === undefined && response.status >= 500 && error.code === 'http_error';
    const busy = response.status === 429 || response.status === 503;
    this.#again = (busy || gateway) && response.headers.get('x-should-retry') !== 'false';
    if (error.retryAfter !== undefined) this.#told = error.retryAfter * 1000 * (1 + Math.random() / 4);
    throw error;
  }

  // read yields what comes on one connection, and returns whether it was all.
  async *#read(response) {
    if (response.status === 204) return true;
    const type = response.headers.get('content-type');
    if (!/^text\/event-stream/i.test(type)) {
      throw this.#final(`expected an event stream, not ${type}: does the request ask for one, as with "stream": true?`, 'no_stream');
    }
    const { channel } = this.#target;
    if (!channel && !this.#index) this.id = response.headers.get('x-response-id') ?? this.id;
    const parse = parser();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await this.#alive(reader.read());
      if (done) return false;
      for (const frame of parse(value)) {
        if (frame.event === 'reconnect') throw this.#sentAway(frame);
        if (!this.#goTo(frame.id)) continue;
        this.#failures = 0;
        const type = types[frame.event || 'message'];
        if (!type) continue;
        const data = this.#decode(frame.data, type);
        if (!channel && type === 'error') throw this.#final('the response has failed', 'error', data.error);
        const last = !channel && type === 'done';
        if (last) this.result = data;
        yield { ...data, type };
        if (last) {
          // The connection is of use to the next request once its end was read.
          await this.#alive(reader.read(), 500).catch(() => {});
          return true;
        }
      }
    }
  }

  // sentAway takes in what the server says as it sends this client away, and
  // returns it as an error.
  #sentAway({ data, id }) {
    const { reason, retry_ms } = this.#decode(data);
    this.#told = this.#retry = retry_ms ?? this.#retry;
    // A server that is busy or gone is to be asked so often and no more.
    if (reason !== 'busy' && reason !== 'exit') this.#failures = 0;
    if (this.#target.channel) this.lastEventId = id ?? this.lastEventId;
    else if (id?.includes(':')) this.id ||= id.split(':')[0];
    return new StreamError(`the server says to come back: ${reason}`, 'reconnect');
  }

  // goTo moves this client to an event, and reports whether it is a new one.
  #goTo(eventId) {
    if (eventId === undefined) return true;
    if (!this.#target.channel) {
      // On a route without resume an id is the index alone.
      const [, id, index] = /^(?:(.+):)?(\d+)$/.exec(eventId) ?? [];
      if (!id) this.#again = false;
      else if (this.#index && id !== this.id) throw this.#final('the server answers with another response', 'other_response');
      else this.id = id;
      if (+index <= this.#index) return false;
      this.#index = +index;
    }
    this.lastEventId = eventId;
    return true;
  }

  #decode(text, type) {
    try {
      const data = JSON.parse(text);
      if (type !== 'text' || typeof data.text === 'string') return data;
    } catch {}
    throw this.#final('expected the events of `emit text`: what does this route emit?', 'wrong_dialect');
  }

  // final is an error after which there is no other try.
  #final(message, code, error) {
    this.#again = false;
    return explain(error, code, message);
  }

  // delay returns how long to wait before the next try, and throws the failure
  // where there is none.
  #delay(failure) {
    const { retries = this.#target.channel ? Infinity : 8 } = this.#options;
    if (!this.#again || this.#failures++ >= retries || this.#told > maxDelay) throw failure;
    return this.#told ?? Math.min(this.#retry * 2 ** (this.#failures - 1), maxDelay / 2) * (0.5 + Math.random());
  }

  // alive waits for a promise, and gives the connection up where nothing comes:
  // there are heartbeats, so it is dead, whatever the network says.
  async #alive(promise, limit) {
    const { idleTimeout = 60_000, resume = true } = this.#options;
    const connection = this.#connection;
    limit ??= resume && idleTimeout;
    const timer = limit && setTimeout(() => connection.abort(new StreamError('the connection is silent', 'idle')), limit);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
    }
  }

  #sleep(delay) {
    return new Promise(resolve => {
      const timer = setTimeout(() => this.#wake(), delay);
      const online = () => this.#told ?? this.#wake();
      globalThis.addEventListener?.('online', online);
      this.#wake = () => {
        clearTimeout(timer);
        globalThis.removeEventListener?.('online', online);
        resolve();
      };
      if (this.#stopped || this.#options.signal?.aborted) this.#wake();
    });
  }
}

/** Returns a client: what its requests have in common is said here once. */
export function createClient(defaults = {}) {
  const merge = options => ({ ...defaults, ...options, headers: [defaults.headers, options?.headers] });
  const open = (options, target) => new Stream(merge(options), { from: options?.lastEventId, ...target });
  const onChannel = (options, channel, rest) => control(merge(options), `/channels/${encodeURIComponent(channel)}${rest}`);
  return {
    post: (path, body, options) => open(options, { path, body: typeof body === 'string' ? body : JSON.stringify(body) }),
    follow: (id, options) => open(options, { from: id }),
    current: (channel, options) => open(options, { path: onChannel(options, channel, '/current') }),
    channel: (channel, options) => open(options, { path: onChannel(options, channel, options?.follow ? '?follow=1' : ''), channel: true }),
    cancel: (id, options) => cancel(merge(options), '/' + encodeURIComponent(id)),
  };
}
