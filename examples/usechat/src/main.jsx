import { useChat } from '@ai-sdk/react';
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';

import { createTransport } from './transport.js';

// The chat is in the address: the same address in another tab is the same chat.
const chat = new URLSearchParams(location.search).get('chat') ?? crypto.randomUUID();
history.replaceState(null, '', `?chat=${chat}`);

const { transport, cancel } = createTransport({ model: 'sim' });

// What was said before is kept here; a real application has it on its server.
// An answer that still runs is left out: it comes again, from its start.
const said = () => JSON.parse(localStorage.getItem(chat) ?? '[]');
function keep(messages, running) {
  const whole = running && messages.at(-1)?.role === 'assistant' ? messages.slice(0, -1) : messages;
  if (whole.length) localStorage.setItem(chat, JSON.stringify(whole));
}

function Chat() {
  const [input, setInput] = useState('');
  const { messages, sendMessage, status, error, resumeStream } = useChat({
    id: chat,
    transport,
    messages: said(),
    resume: true,
    onFinish: ({ isDisconnect }) => {
      // The network was cut, and the answer goes on without this page.
      if (isDisconnect) setTimeout(resumeStream, 500 + 1000 * Math.random());
    },
  });
  const running = status === 'submitted' || status === 'streaming';
  useEffect(() => keep(messages, status !== 'ready'), [messages, status]);

  return (
    <main>
      <h1>useChat before llm_stream</h1>
      <ol aria-label="Conversation">
        {messages.map(message => (
          <li key={message.id} className={message.role}>
            <b>{message.role}</b>{' '}
            {message.parts.map((part, i) => (part.type === 'text' ? <span key={i}>{part.text}</span> : null))}
          </li>
        ))}
      </ol>
      <form onSubmit={event => {
        event.preventDefault();
        sendMessage({ text: input });
        setInput('');
      }}>
        <label>Your question <input value={input} onChange={event => setInput(event.target.value)} /></label>
        <button disabled={running || !input}>Send</button>
        <button type="button" disabled={!running} onClick={cancel}>Stop</button>
      </form>
      <p role="status">{error ? error.message : status}</p>
    </main>
  );
}

createRoot(document.getElementById('root')).render(<Chat />);
