// What useChat needs to speak to llm_stream without a server between: the
// request in the form of OpenAI's chat completions, and the endpoints of
// `resume` for a page that is opened again and for its stop button.
import { DefaultChatTransport } from 'ai';

const prefix = '/llm';

// text joins the parts of a message that a model reads.
const text = message => message.parts.filter(part => part.type === 'text').map(part => part.text).join('');

export function createTransport({ model }) {
  let id = ''; // of the response, once it is known
  let key = ''; // of the request, until then

  const transport = new DefaultChatTransport({
    api: '/v1/chat/completions',
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      id = response.headers.get('X-Response-Id') ?? '';
      return response;
    },
    prepareSendMessagesRequest: ({ id: chat, messages }) => {
      id = '';
      key = crypto.randomUUID();
      return {
        headers: { 'X-Chat-Id': chat, 'Idempotency-Key': key },
        body: { model, stream: true, messages: messages.map(message => ({ role: message.role, content: text(message) })) },
      };
    },
    // 204 where nothing runs
    prepareReconnectToStreamRequest: ({ id: chat }) => ({ api: `${prefix}/channels/${encodeURIComponent(chat)}/current` }),
  });

  // useChat's own stop() only stops reading, and with `resume` the answer would
  // go on for other readers. This one ends it for all of them: it is useChat
  // that then reads an end.
  const cancel = () => fetch(`${prefix}/cancel${id ? `/${id}` : `?idempotency_key=${key}`}`, { method: 'POST' });

  return { transport, cancel };
}
