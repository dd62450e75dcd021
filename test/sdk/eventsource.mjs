import { EventSource } from 'eventsource';

import { main } from './run.mjs';

await main({
  // page is what a page does that closes the source at the end.
  page: (run, got) => listen(run, got, true),
  // forgetful never closes it: the server has to stop it.
  forgetful: (run, got) => listen(run, got, false),
});

function listen(run, got, closes) {
  return new Promise((resolve, reject) => {
    const source = new EventSource(run.url);
    const on = (type, use) => source.addEventListener(type, e => {
      if (e.data === undefined) return;
      got.ids.push(e.lastEventId);
      use(JSON.parse(e.data));
    });
    const end = () => {
      if (!closes) return;
      source.close();
      resolve();
    };
    on('message', data => { got.text += data.text; });
    on('reasoning', data => { got.reasoning += data.text; });
    on('refusal', data => { got.refusal += data.text; });
    on('tool_call', data => {
      got.tools[data.index] ??= { id: data.id, name: data.name, arguments: '' };
      got.tools[data.index].arguments += data.arguments;
    });
    on('done', data => {
      got.finish = data.finish_reason;
      got.usage = data.usage && { input: data.usage.input_tokens, output: data.usage.output_tokens };
      got.ended = true;
      end();
    });
    on('error', data => {
      got.error = { class: 'error event', ...data.error };
      end();
    });
    // An error without data is the source's own: it reconnects, or has closed.
    source.addEventListener('error', e => {
      if (e.data !== undefined) return;
      got.connections = (got.connections ?? 1) + 1;
      if (source.readyState !== EventSource.CLOSED) return;
      got.closed = e.code;
      if (got.ended || got.error) resolve();
      else reject(Object.assign(new Error(e.message), { status: e.code }));
    });
  });
}
