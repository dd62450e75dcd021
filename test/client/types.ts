// Compiled, never run: what the types of the client must allow, and must not.
import { createClient, StreamError, type ChannelEvent, type Delta, type Result, type Stream } from '../../client/index.js';

const llm = createClient({ base: 'https://llm.example.com', headers: async () => ({ Authorization: 'Bearer t' }), credentials: 'include' });

export async function read(signal: AbortSignal): Promise<string> {
  const stream: Stream = llm.post('/v1/chat/completions', { model: 'm' }, { signal, idempotencyKey: 'k', onRetry: ({ delay, attempt }) => delay + attempt });
  let all = '';
  for await (const delta of stream) {
    switch (delta.type) {
      case 'text':
      case 'reasoning':
      case 'refusal':
        all += delta.text;
        break;
      case 'tool_call':
        all += delta.name ?? delta.arguments;
        break;
      case 'gap':
        all += delta.dropped.toFixed();
        break;
      case 'done':
        all += delta.finish_reason + (delta.usage?.output_tokens ?? 0);
        break;
      default:
        delta satisfies never;
    }
  }
  const result: Result | undefined = stream.result;
  // @ts-expect-error: only the client writes it
  stream.id = '';
  await stream.cancel();
  return all + result?.finish_reason;
}

export async function channel(): Promise<void> {
  for await (const event of llm.channel('c', { follow: true })) {
    const id: string = event.response_id;
    if (event.type === 'started') console.log(id, event.started_at);
    if (event.type === 'text') console.log(event.text);
    const any: ChannelEvent = event;
    void any;
  }
  for await (const delta of llm.current('c')) {
    const any: Delta = delta;
    void any;
    // @ts-expect-error: only the events of a channel name their response
    void delta.response_id;
  }
  try {
    await llm.follow('id').text();
  } catch (error) {
    if (error instanceof StreamError && error.status === 429) console.log(error.retryAfter?.toFixed(), error.code);
  }
  // @ts-expect-error: an option that there is not
  llm.post('/v1', '', { timeout: 1 });
}
