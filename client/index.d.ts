/** A piece of the answer. `choice` is there where it is not 0. */
export interface TextDelta {
  type: 'text' | 'reasoning' | 'refusal';
  text: string;
  choice?: number;
}

/** A piece of a tool call: `id` and `name` come with the first one of an index. */
export interface ToolCallDelta {
  type: 'tool_call';
  index: number;
  id?: string;
  name?: string;
  arguments: string;
  choice?: number;
}

/** So many events were left out, because this client was slow (`slow_client drop`). */
export interface GapDelta {
  type: 'gap';
  dropped: number;
}

export type FinishReason =
  | 'stop' | 'length' | 'tool_calls' | 'content_filter' | 'pause' | 'cancelled' | 'other';

export interface Usage {
  input_tokens?: number;
  output_tokens?: number;
  cached_input_tokens?: number;
  cache_write_tokens?: number;
  reasoning_tokens?: number;
}

export interface Result {
  finish_reason: FinishReason;
  /** The provider's own word, where it is another. */
  provider_finish_reason?: string;
  /** Of every choice, where there are several. */
  choices?: { choice: number; finish_reason: FinishReason }[];
  usage?: Usage;
}

/** The end of a response. It is the last delta. */
export interface DoneDelta extends Result {
  type: 'done';
}

export type Delta = TextDelta | ToolCallDelta | GapDelta | DoneDelta;

export interface ErrorObject {
  type: string;
  code: string;
  message: string;
  response_id?: string;
  upstream?: unknown;
}

/** What a channel says; the deltas of its responses only with `follow`. */
export type ChannelEvent =
  | { type: 'started'; response_id: string; started_at: string }
  | { type: 'ended'; response_id: string; status: 'done' | 'cancelled' | 'failed' | 'interrupted'; model?: string }
  | { type: 'error'; response_id: string; error: ErrorObject }
  | (Delta & { response_id: string });

/**
 * What a stream throws, the reason of an aborted signal aside.
 *
 * `code` is one of the server's, such as `too_many_streams`,
 * `first_token_timeout` or `upstream_error`, or one of the client's own:
 * `cut`, `idle` and `reconnect` (the connection was lost, or the server ended
 * it in good order, and there is no other try),
 * `http_error` (a status without an error object), `no_stream`,
 * `wrong_dialect` and `other_response`. A network that can not be reached is
 * the TypeError of `fetch`.
 */
export class StreamError extends Error {
  readonly name: 'StreamError';
  readonly code: string;
  /** The HTTP status, where the request was answered with one. */
  readonly status?: number;
  /** In seconds, where the server said. */
  readonly retryAfter?: number;
  readonly type?: string;
  readonly responseId?: string;
  /** The error object of the backend. */
  readonly upstream?: unknown;
}

export interface Retry {
  /** Why: what the last connection ended with. */
  error: unknown;
  /** In milliseconds, from now. */
  delay: number;
  /** Counts failures in a row, from 1. */
  attempt: number;
}

type HeaderFields = Headers | Record<string, string> | [string, string][];
type HeadersSource = HeaderFields | (() => HeaderFields | Promise<HeaderFields>);

export interface Options {
  /** Before every path: an origin such as `https://llm.example.com`. Default: none, which is a browser's own origin. */
  base?: string;
  /** The prefix of `resume` in the server's configuration. Default: `/llm`. */
  prefix?: string;
  /** Of every request, also those that reconnect. A function is called for each of them. */
  headers?: HeadersSource;
  /** As of `fetch`. Default: `same-origin`. */
  credentials?: 'omit' | 'same-origin' | 'include';
  /** Default: the global one. */
  fetch?: (request: Request) => Promise<Response>;
  /** How many failures in a row are made up for. Default: 8; of a channel, any number. */
  retries?: number;
  /** Called before each other try, to tell the user. */
  onRetry?: (retry: Retry) => void;
  /** After so many milliseconds without a byte a connection is given up for another. Default: 60000; 0 for never. */
  idleTimeout?: number;
  /** `false` on a route without `resume`, where a request must not be sent twice. Default: true. */
  resume?: boolean;
}

export interface StreamOptions extends Options {
  /** Aborting it leaves: the generation goes on for who else reads it, and for the server's `grace`. */
  signal?: AbortSignal;
}

export interface PostOptions extends StreamOptions {
  /** Names the request over reloads of a page. Default: a random one. */
  idempotencyKey?: string;
  /** Goes on with a response after this event; the body is not sent then. */
  lastEventId?: string;
}

export interface ChannelOptions extends StreamOptions {
  /** The deltas of every response of the channel, too. */
  follow?: boolean;
  /** Goes on after this event. */
  lastEventId?: string;
}

/** The request is sent when the reading begins. A stream can be read once. */
export interface Stream<T = Delta> extends AsyncIterable<T> {
  [Symbol.asyncIterator](): AsyncGenerator<T, void, undefined>;
  /** The id of the response, empty until it is known. */
  readonly id: string;
  /** The last event that was read, empty before the first. */
  readonly lastEventId: string;
  /** Of a POST. */
  readonly idempotencyKey?: string;
  /** How it ended, once it has. */
  readonly result?: Result;
  /** Reads to the end, and returns the text of the first choice. */
  text(): Promise<string>;
  /** Stops the generation, for everyone. The stream then ends with finish reason `cancelled`. */
  cancel(): Promise<Cancellation>;
}

export interface Cancellation {
  response_id: string;
  status: 'in_progress' | 'done' | 'cancelled' | 'failed' | 'interrupted';
}

export interface Client {
  /** Sends a request to a route with `llm_stream`. An object becomes JSON. */
  post(path: string, body: unknown, options?: PostOptions): Stream;
  /** A response by its id, from the start; or by an event's id, from there. */
  follow(id: string, options?: StreamOptions): Stream;
  /** What runs on a channel, from its start; nothing where nothing does. */
  current(channel: string, options?: StreamOptions): Stream;
  /** What happens on a channel. It has no end. */
  channel(channel: string, options?: ChannelOptions): Stream<ChannelEvent>;
  /** Stops a generation, for everyone. */
  cancel(id: string, options?: Options): Promise<Cancellation>;
}

export function createClient(options?: Options): Client;
