"""The whole path without a network: every attempt to connect fails and is counted."""

import subprocess
import sys

SCRIPT = """
import socket
attempts = []
def refuse(*args, **kwargs):
    attempts.append(args)
    raise OSError("no network in this test")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse

import kvcourse as kv
model, tokenizer = kv.load()
ids = tokenizer("I like rock music because", return_tensors="pt").input_ids
out = model.generate(ids, max_new_tokens=5, do_sample=False)
print(tokenizer.decode(out[0, ids.shape[1]:]))
kv.load("tiny")
print(len(attempts))
"""


def test_load_and_generate_with_the_network_blocked():
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    first, *_, last = run.stdout.splitlines()
    assert first == " it's a way to"
    assert last == "0"
    assert run.stderr == ""  # a notebook would show it
