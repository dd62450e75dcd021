// The playground of llm_stream: a chat with what the client and the server do
// about failures in sight. Nothing here is needed to use either.
import { createClient } from './client.js';

const $ = id => document.getElementById(id);
const config = await (await fetch('playground/config.json')).json();

// The chat is in the address, so that a second device is the same page.
const chat = new URLSearchParams(location.hash.slice(1)).get('chat') ??
	Array.from(crypto.getRandomValues(new Uint8Array(8)), byte => byte.toString(16).padStart(2, '0')).join('');
history.replaceState(null, '', `#chat=${chat}`);
$('device').href = location.href;
$('channel-name').textContent = `channel ${chat}`;

// A network of this page's own: it counts bytes, and its connections can be cut.
const cuts = new Set();

function network(meter) {
	return async request => {
		const cut = new AbortController();
		cuts.add(cut);
		meter.connections++;
		const end = () => cuts.delete(cut);
		request.signal.addEventListener('abort', () => cut.abort());
		const response = await fetch(new Request(request, { signal: cut.signal })).catch(error => { end(); throw error; });
		if (!response.body) {
			end();
			return response;
		}
		const reader = response.body.getReader();
		const body = new ReadableStream({
			async pull(controller) {
				const { done, value } = await reader.read();
				if (done) {
					end();
					controller.close();
					return;
				}
				meter.wire += value.length;
				controller.enqueue(value);
			},
			cancel: reason => { end(); return reader.cancel(reason); },
		});
		return new Response(body, { status: response.status, headers: response.headers });
	};
}

function log(message) {
	const item = document.createElement('p');
	item.textContent = `${new Date().toLocaleTimeString([], { hour12: false })} ${message}`;
	$('log').append(item);
	$('log').scrollTop = $('log').scrollHeight;
}

const say = message => { $('status').textContent = message; };

// describe says why there is another try.
const describe = ({ error, delay }) =>
	`${error.status ? `status ${error.status}` : error.message}; back in ${(delay / 1000).toFixed(1)} s`;

// Paper is where answers are written. It stays at the end unless it was moved.
class Paper {
	constructor(element) {
		this.element = element;
	}

	write(kind, text) {
		const { element } = this;
		const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
		element.querySelector('.hint')?.remove();
		const p = document.createElement('p');
		p.className = kind;
		p.textContent = text;
		element.append(p);
		if (atEnd) element.scrollTop = element.scrollHeight;
		return p;
	}

	add(p, text) {
		const { element } = this;
		const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
		p.append(text);
		if (atEnd) element.scrollTop = element.scrollHeight;
	}
}

// Answer writes the deltas of one response.
class Answer {
	text = '';

	constructor(paper) {
		this.paper = paper;
	}

	take(delta) {
		const kind = { text: 'answer', refusal: 'answer', reasoning: 'reasoning', tool_call: 'reasoning' }[delta.type];
		if (kind) {
			if (this.kind !== kind) this.p = this.paper.write(kind, '');
			this.kind = kind;
			const text = delta.text ?? (delta.name ? `${delta.name} ` : '') + delta.arguments;
			if (delta.type === 'text') this.text += delta.text;
			this.paper.add(this.p, text);
		}
		if (delta.type === 'gap') this.paper.write('end', `${delta.dropped} events left out`);
	}

	end(result) {
		const tokens = result.usage?.output_tokens;
		this.paper.write('end', result.finish_reason + (tokens === undefined ? '' : `, ${tokens} tokens`));
	}

	fail(error) {
		this.paper.write('end failed', `${error.code ?? error.name}: ${error.message}`);
	}
}

const bytes = n => (n < 10_000 ? `${n}` : `${(n / 1000).toFixed(1)} k`);
const index = stream => +stream.lastEventId.split(':')[1] || 0;
const encoder = new TextEncoder();

// This device.
const paper = new Paper($('chat'));
const messages = [];
const meter = { connections: 0, wire: 0 };
const llm = createClient({
	prefix: config.prefix,
	headers: { 'X-Chat-Id': chat },
	fetch: network(meter),
	onRetry: retry => log(`this device: ${describe(retry)}`),
});
let running;

function show(times, stream, answer) {
	$('ttft').textContent = times.first ? `${Math.round(times.first - times.sent)} ms` : '–';
	const seconds = (times.last - times.first) / 1000;
	$('rate').textContent = seconds > 0 ? ((index(stream) - times.index) / seconds).toFixed(1) : '–';
	$('wire').textContent = bytes(meter.wire);
	$('text').textContent = bytes(encoder.encode(answer.text).length);
	$('connections').textContent = meter.connections;
}

// read shows a response as it comes.
async function read(stream) {
	running = stream;
	$('send').disabled = true;
	$('cancel').disabled = false;
	Object.assign(meter, { connections: 0, wire: 0 });
	const times = { sent: performance.now() };
	const answer = new Answer(paper);
	const timer = setInterval(() => show(times, stream, answer), 100);
	try {
		for await (const delta of stream) {
			times.last = performance.now();
			if (!times.first) {
				Object.assign(times, { first: times.last, index: index(stream) });
				sessionStorage.setItem(chat, stream.id);
			}
			answer.take(delta);
		}
		if (stream.result) answer.end(stream.result);
		messages.push({ role: 'assistant', content: answer.text });
		say(`The answer is complete: ${answer.text.split(/\s+/).length} words.`);
	} catch (error) {
		answer.fail(error);
		say(`The answer has failed: ${error.message}`);
	} finally {
		clearInterval(timer);
		show(times, stream, answer);
		sessionStorage.removeItem(chat);
		running = undefined;
		$('send').disabled = false;
		$('cancel').disabled = true;
	}
}

$('ask').addEventListener('submit', event => {
	event.preventDefault();
	const content = $('question').value.trim();
	if (running || !content) return;
	$('question').value = '';
	messages.push({ role: 'user', content });
	paper.write('question', content);
	read(llm.post(config.endpoint, {
		model: $('model').value, stream: true, stream_options: { include_usage: true }, messages,
	}));
});

$('question').addEventListener('keydown', event => {
	if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
	event.preventDefault();
	$('ask').requestSubmit();
});

async function cancel(stop) {
	try {
		const { status } = await stop();
		log(`cancel: ${status}`);
	} catch (error) {
		log(`cancel: ${error.message}`);
	}
}

document.addEventListener('keydown', event => {
	if (event.key === 'Escape' && running) cancel(() => running.cancel());
});
$('cancel').addEventListener('click', () => cancel(() => running.cancel()));

$('cut').addEventListener('click', () => {
	log(`the network is cut: ${cuts.size} connections`);
	for (const cut of cuts) cut.abort(new Error('the connection was cut'));
});

$('reload').addEventListener('click', async () => {
	if (!config.reload) {
		$('command').hidden = false;
		$('copy').focus();
		return;
	}
	const response = await fetch(config.reload, { method: 'POST' }).catch(error => ({ statusText: error.message }));
	log(response.ok ? 'the server reloads its configuration' : `reload: ${response.status ?? ''} ${response.statusText}`);
});
$('copy').addEventListener('click', async () => {
	await navigator.clipboard?.writeText($('command').querySelector('code').textContent);
	say('Copied.');
});

// The other device.
const there = createClient({
	prefix: config.prefix,
	fetch: network({ connections: 0, wire: 0 }),
	onRetry: retry => log(`the other device: ${describe(retry)}`),
});
const answers = new Map();

$('cancel-there').addEventListener('click', () => {
	for (const id of answers.keys()) cancel(() => there.cancel(id));
});

async function follow() {
	const paper = new Paper($('channel'));
	for await (const event of there.channel(chat, { follow: true })) {
		const id = event.response_id;
		if (event.type === 'started') {
			answers.set(id, new Answer(paper));
			paper.write('question', `Response ${id}`);
			log(`channel: ${id} has started`);
		} else if (event.type === 'ended') {
			answers.delete(id);
			log(`channel: ${id} has ended: ${event.status}`);
		} else if (event.type === 'done') {
			answers.get(id)?.end(event);
		} else if (event.type === 'error') {
			answers.get(id)?.fail(event.error);
		} else {
			answers.get(id)?.take(event);
		}
		$('cancel-there').disabled = answers.size === 0;
	}
}

follow().catch(error => log(`channel: ${error.message}`));

// What ran when this page was left goes on.
const left = sessionStorage.getItem(chat);
if (left) read(llm.follow(left));

$('model').value = config.model;
const list = await fetch(config.models).then(response => response.json()).catch(() => ({}));
for (const { id } of list.data ?? []) {
	const option = document.createElement('option');
	option.value = id;
	$('models').append(option);
	$('model').value ||= id;
}
