// An EventSource comes back by itself and says where it was. It can only GET,
// so that the question is a POST whose answer is then read by its id.
const form = document.forms[0];
const answer = document.getElementById('answer');
const state = document.getElementById('state');
let id;

form.addEventListener('submit', async event => {
  event.preventDefault();
  answer.textContent = '';
  const messages = [{ role: 'user', content: form.question.value }];
  const response = await fetch('/v1/chat/completions', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ model: 'sim', stream: true, messages }),
  });
  if (!response.ok) {
    state.textContent = (await response.json()).error.message;
    return;
  }
  id = response.headers.get('X-Response-Id');
  await response.body.cancel(); // with `resume` the answer goes on all the same
  read(new EventSource(`/llm/streams/${id}`));
});

form.stop.addEventListener('click', () => fetch(`/llm/cancel/${id}`, { method: 'POST' }));

function read(source) {
  state.textContent = 'streaming';
  source.onmessage = event => answer.append(JSON.parse(event.data).text);
  source.addEventListener('done', event => {
    source.close(); // or it would ask once more, and be told 204
    state.textContent = JSON.parse(event.data).finish_reason;
  });
  source.addEventListener('error', event => {
    if (event.data) { // ours; the browser's own has none
      source.close();
      state.textContent = JSON.parse(event.data).error.message;
    } else if (source.readyState === EventSource.CLOSED) {
      state.textContent = 'gone'; // a status other than 200: the response is no longer kept
    }
  });
}
