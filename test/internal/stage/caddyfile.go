package stage

// Caddyfile has a route for each thing that a client may meet. Its streams come
// back from a reload within half a second.
const Caddyfile = `{
	llm_stream {
		max_clients 4
	}
}
ADDR {
	handle_path /one/* {
		llm_stream {
			max_streams 1
			resume /llm
		}
		reverse_proxy BACKEND
	}
	handle_path /plain/* {
		llm_stream
		reverse_proxy BACKEND
	}
	handle_path /openai/* {
		llm_stream {
			emit openai
		}
		reverse_proxy BACKEND
	}
	handle_path /files/* {
		root FILES
		file_server
	}
	handle {
		llm_stream /v1/* {
			include reasoning tool_calls
			heartbeat 200ms
			resume /llm {
				owner   anyone
				channel {header.X-Chat-Id}
			}
			drain {
				spread 200ms
				retry  300ms
			}
		}
		reverse_proxy BACKEND
	}
}
`
