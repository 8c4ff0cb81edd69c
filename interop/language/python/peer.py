"""A stock gRPC peer in Python: peer.py DESCRIPTORS server | client ADDRESS.

DESCRIPTORS is a file with a FileDescriptorSet. The server prints its address
and serves until its standard input ends. The client reads one JSON object a
line, {"text", "attachments": [hex], "method"}, and answers each with one of the
same form, or with {"code", "message"}.
"""

import concurrent.futures
import hashlib
import json
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "gdrpc.test.v1.Echo"
FIELD = "gdrpc_attachments"


def message_classes(path):
    pool = descriptor_pool.DescriptorPool()
    with open(path, "rb") as f:
        for file in descriptor_pb2.FileDescriptorSet.FromString(f.read()).file:
            pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {
        method: factory.GetPrototype(pool.FindMessageTypeByName("gdrpc.test.v1." + name))
        for method, name in (("Declared", "DeclaredMessage"), ("Plain", "PlainMessage"))
    }


def serve(classes):
    def declared(request, _):
        order = json.loads(request.text or "{}")
        values = getattr(request, FIELD)
        seen = {"server": "python", "sums": [hashlib.sha256(v).hexdigest() for v in values]}
        reply = classes["Declared"](text=json.dumps(seen))
        if order.get("bounce"):
            getattr(reply, FIELD).extend(values)
        return reply

    def plain(request, _):
        return classes["Plain"](text='{"server": "python", "sums": []}')

    def chat(requests, _):
        yield from requests

    def handler(make, behaviour, method):
        c = classes[method]
        return make(behaviour, request_deserializer=c.FromString, response_serializer=c.SerializeToString)

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {
        "Declared": handler(grpc.unary_unary_rpc_method_handler, declared, "Declared"),
        "Plain": handler(grpc.unary_unary_rpc_method_handler, plain, "Plain"),
        "Chat": handler(grpc.stream_stream_rpc_method_handler, chat, "Plain"),
    })])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print("127.0.0.1:%d" % port, flush=True)
    sys.stdin.read()
    server.stop(None)


def call(channel, classes, line):
    method = line["method"]
    if method == "Chat":
        c = classes["Plain"]
        stub = channel.stream_stream("/%s/Chat" % SERVICE, request_serializer=c.SerializeToString, response_deserializer=c.FromString)
        return {"text": "".join(m.text for m in stub(iter([c(text=t) for t in line["text"]]), timeout=20))}
    c = classes[method]
    stub = channel.unary_unary("/%s/%s" % (SERVICE, method), request_serializer=c.SerializeToString, response_deserializer=c.FromString)
    request = c(text=line["text"])
    if line["attachments"]:
        getattr(request, FIELD).extend(bytes.fromhex(a) for a in line["attachments"])
    reply = stub(request, timeout=20)
    return {"text": reply.text, "attachments": [a.hex() for a in getattr(reply, FIELD, [])]}


def client(classes, address):
    with grpc.insecure_channel(address) as channel:
        for line in sys.stdin:
            try:
                answer = call(channel, classes, json.loads(line))
            except grpc.RpcError as e:
                answer = {"code": e.code().value[0], "message": e.details()}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if sys.argv[2] == "server":
        serve(message_classes(sys.argv[1]))
    else:
        client(message_classes(sys.argv[1]), sys.argv[3])
