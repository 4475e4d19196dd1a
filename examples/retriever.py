"""A small retriever with the HTTP interface of Search-R1: BM25 over the documents of a JSON Lines file.

    retriever.py serve CORPUS PORT     POST /retrieve {"queries": ["..."], "topk": 3}, on 127.0.0.1
    retriever.py corpus FILE           write three example documents
    retriever.py ask PORT QUERY        on every node of the Ray cluster, query the retriever of that node

Needs only Python. Search-R1's retriever needs pyserini or faiss; requests and answers are the same.
"""

import json
import math
import re
import sys
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DOCUMENTS = [
    "Slurm is a workload manager for clusters.",
    "Ray runs Python tasks and actors on a cluster.",
    "A retriever finds documents for a question.",
]


def words(text):
    return re.findall(r"\w+", text.lower())


class Index:
    """BM25 (k1 = 1.5, b = 0.75) over a list of {"id", "contents"}."""

    def __init__(self, documents):
        self.documents = documents
        self.counts = [Counter(words(document["contents"])) for document in documents]
        self.mean = sum(sum(counts.values()) for counts in self.counts) / len(documents)
        self.found_in = Counter(word for counts in self.counts for word in counts)

    def score(self, query, counts):
        total, length = 0.0, sum(counts.values()) / self.mean
        for word in words(query):
            rarity = math.log(
                1 + (len(self.counts) - self.found_in[word] + 0.5) / (self.found_in[word] + 0.5)
            )
            total += rarity * counts[word] * 2.5 / (counts[word] + 1.5 * (0.25 + 0.75 * length))
        return total

    def best(self, query, topk):
        scored = [(self.score(query, counts), number) for number, counts in enumerate(self.counts)]
        best = sorted(scored, reverse=True)[:topk]
        return [{"document": self.documents[number], "score": score} for score, number in best]


def serve(corpus, port):
    with open(corpus, encoding="utf-8") as file:
        index = Index([json.loads(line) for line in file])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = [index.best(query, body.get("topk", 3)) for query in body["queries"]]
            answer = json.dumps({"result": found}).encode()
            self.send_response(200 if self.path == "/retrieve" else 404)
            self.end_headers()
            self.wfile.write(answer)

    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


def retrieve(port, query):
    body = json.dumps({"queries": [query], "topk": 1}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/retrieve", body)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return json.load(answer)["result"][0][0]["document"]["contents"]


def ask(port, query):
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(logging_level="warning")
    task = ray.remote(num_cpus=0)(retrieve)
    for node in sorted(ray.nodes(), key=lambda node: node["NodeName"]):
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        found = ray.get(task.options(scheduling_strategy=place).remote(port, query))
        print(f"{node['NodeName']}: {found}")


def corpus(path):
    with open(path, "w", encoding="utf-8") as file:
        for number, contents in enumerate(DOCUMENTS):
            file.write(json.dumps({"id": str(number), "contents": contents}) + "\n")


if __name__ == "__main__":
    {"serve": serve, "ask": ask, "corpus": corpus}[sys.argv[1]](*sys.argv[2:])
