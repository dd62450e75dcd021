// What the client does, by hand and with less care: a POST that is repeated
// where its answer was cut, and says with Last-Event-ID where it was.
const form = document.forms[0];
const answer = document.getElementById('answer');
const state = document.getElementById('state');
let controller;

form.addEventListener('submit', async event => {
  event.preventDefault();
  answer.textContent = '';
  state.textContent = 'streaming';
  controller = new AbortController();
  const messages = [{ role: 'user', content: form.question.value }];
  try {
    state.textContent = await ask({ model: 'sim', stream: true, messages });
  } catch (error) {
    state.textContent = error.message;
  }
});

form.stop.addEventListener('click', () => controller.abort());

// ask shows an answer and returns how it has ended.
async function ask(body) {
  const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': crypto.randomUUID() };
  for (let tries = 0; tries < 10; tries++) {
    let wait = 1000 + 1000 * Math.random();
    try {
      const response = await fetch('/v1/chat/completions', {
        method: 'POST', headers, body: JSON.stringify(body), signal: controller.signal,
      });
      if (response.status === 429 || response.status === 503) {
        wait = 1000 * (response.headers.get('Retry-After') ?? 1);
      } else if (!response.ok) {
        return (await response.json()).error.message;
      } else {
        for await (const { event, data, id } of frames(response.body)) {
          if (id) headers['Last-Event-ID'] = id;
          if (!event) answer.append(data.text);
          if (event === 'done') return data.finish_reason;
          if (event === 'error') return data.error.message;
          if (event === 'reconnect') wait = data.retry_ms;
          tries = 0;
        }
      }
    } catch {
      controller.signal.throwIfAborted();
    }
    await new Promise(resolve => setTimeout(resolve, wait));
  }
  return 'the server can not be reached';
}

// frames yields the server-sent events of a body.
async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const list = (rest + value).split('\n\n');
    rest = list.pop();
    for (const text of list) {
      const frame = {};
      for (const line of text.split('\n')) {
        const [, name, field] = /^(\w+): (.*)$/.exec(line) ?? [];
        if (name) frame[name] = name === 'data' ? JSON.parse(field) : field;
      }
      if (frame.data) yield frame;
    }
  }
}
