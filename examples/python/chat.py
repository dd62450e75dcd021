#!/usr/bin/env python3
"""Asks a question, prints the answer as it comes, and goes on after a cut.

    python3 chat.py http://localhost:8080 "How does a token stream survive a reload?"

It needs Python 3.8 and nothing else, and before the backend a route with
`llm_stream` that emits `text` and has `resume`.
"""

import json
import random
import sys
import time
import urllib.error
import urllib.request
import uuid


class Refused(Exception):
    """The server has answered, and there is no other try."""


def frames(response):
    """Yields (event, data, id) of server-sent events."""
    frame = {}
    for line in response:
        line = line.decode().rstrip("\r\n")
        if line:
            name, _, value = line.partition(":")
            frame[name] = value[1:] if value.startswith(" ") else value
        else:
            if "data" in frame:
                yield frame.get("event", "message"), json.loads(frame["data"]), frame.get("id")
            frame = {}


def ask(url, body, tries=8):
    """Yields the text of an answer; the last thing it yields is the result."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        # a request that was cut before it had an id finds its generation again
        "Idempotency-Key": str(uuid.uuid4()),
    }
    data = json.dumps(body).encode()
    failures = 0
    while True:
        wait = random.uniform(0.5, 1.5) * 2**failures
        try:
            request = urllib.request.Request(url, data, headers, method="POST")
            # heartbeats come every 15 s, so a minute of silence is a dead connection
            with urllib.request.urlopen(request, timeout=60) as response:
                for event, data_of_event, event_id in frames(response):
                    if event_id:
                        headers["Last-Event-ID"] = event_id
                    failures = 0
                    if event == "message":
                        yield data_of_event["text"]
                    elif event == "done":
                        yield data_of_event
                        return
                    elif event == "error":
                        raise Refused(data_of_event["error"]["message"])
                    elif event == "reconnect":
                        wait = data_of_event["retry_ms"] / 1000
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):
                raise Refused(f"{error.code}: {error.read().decode()}") from error
            wait = float(error.headers.get("Retry-After", wait))
        except (OSError, ValueError) as error:  # ValueError: half a frame
            print(f"\n[{error}; back in {wait:.1f} s]", file=sys.stderr)
        failures += 1
        if failures > tries:
            raise Refused("the server can not be reached")
        time.sleep(wait)


def main():
    base, question = sys.argv[1], sys.argv[2]
    body = {"model": "sim", "stream": True, "messages": [{"role": "user", "content": question}]}
    try:
        for piece in ask(base + "/v1/chat/completions", body):
            if isinstance(piece, str):
                print(piece, end="", flush=True)
            else:
                print(f"\n[{piece['finish_reason']}]", file=sys.stderr)
    except Refused as error:
        sys.exit(f"\n{error}")


if __name__ == "__main__":
    main()
