#!/usr/bin/env python3
"""Confluent's own Python client and serializers against `penstock registry`, on a real Kafka: register, evolve, refuse, delete, restart, outage;
and what lies in the topic is what Confluent's server would have written."""
import json, signal, sys, time
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parent))
from kit import Platform, check, skip, until
try:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.error import SchemaRegistryError
    from confluent_kafka.serialization import MessageField, SerializationContext
except ImportError as e:
    skip(f"no Confluent client ({e}): run it with the interpreter that tests/live/venv prints")

V1 = '{"type":"record","name":"T","fields":[{"name":"a","type":"int"}]}'
V2 = '{"type":"record","name":"T","fields":[{"name":"a","type":"long"},{"name":"b","type":"string","default":"x"}]}'
BAD = '{"type":"record","name":"T","fields":[{"name":"a","type":"string"}]}'


def avro(text):
    return Schema(text, "AVRO")


def refused(what, call, status, *codes):
    try:
        got = call()
    except SchemaRegistryError as e:
        check(e.http_status_code == status and e.error_code in codes, f"{what}: {e.http_status_code} {e.error_code}, wanted {status} {codes}")
    else:
        check(False, f"{what}: not refused, answered {got!r}")


with Platform(up=False) as p:
    def fresh():
        return SchemaRegistryClient({"url": p.registry})

    def stop(w):
        w.send_signal(signal.SIGTERM)
        check(w.wait(15) == 0, f"the registry exited {w.returncode} on SIGTERM")

    w = p.start_registry()
    c = fresh()
    i1 = c.register_schema("t-value", avro(V1))
    check(fresh().register_schema("t-value", avro(V1)) == i1 and fresh().get_versions("t-value") == [1], "registering again is not idempotent")
    check(c.test_compatibility("t-value", avro(V2)), "V2 is compatible")
    check(not c.test_compatibility("t-value", avro(BAD)), "BAD is not compatible")
    i2 = c.register_schema("t-value", avro(V2))
    check(i2 == i1 + 1, f"ids {i1}, {i2}")
    check(fresh().register_schema("other-value", avro(V1)) == i1, "one schema, one id, in every subject")
    refused("an incompatible schema", lambda: c.register_schema("t-value", avro(BAD)), 409, 409, 40901)
    refused("nonsense", lambda: c.register_schema("n-value", avro('{"type":"nonsense"}')), 422, 42201)
    refused("an unknown id", lambda: c.get_schema(99999), 404, 40403)
    refused("an unknown subject", lambda: c.get_versions("no-such-value"), 404, 40401)
    refused("an unknown version", lambda: fresh().get_version("t-value", 9), 404, 40402)
    refused("an unknown schema of a known subject", lambda: fresh().lookup_schema("t-value", avro('"int"')), 404, 40403)
    refused("a level that is none", lambda: c.set_compatibility("t-value", "SIDEWAYS"), 422, 42203)
    check(fresh().lookup_schema("t-value", avro(V2)).version == 2, "lookup finds version 2")
    check(fresh().get_latest_version("t-value").schema_id == i2, "latest is version 2")
    c.set_compatibility("t-value", "FULL")
    check(c.get_compatibility("t-value") == "FULL", "the subject's level")

    ctx = SerializationContext("t", MessageField.VALUE)
    raw = AvroSerializer(fresh(), V1)({"a": 7}, ctx)
    check(raw[:5] == b"\0" + i1.to_bytes(4, "big"), f"framing {raw[:5]!r}")
    check(AvroDeserializer(fresh(), V2)(raw, ctx) == {"a": 7, "b": "x"}, "round trip with evolution")

    check(c.delete_subject("other-value") == [1], "soft delete answers the versions")
    check("other-value" not in fresh().get_subjects(), "a deleted subject is not listed")
    check(fresh().get_schema(i1).schema_str, "its id stays readable")
    check(fresh().delete_subject("other-value", permanent=True) == [1], "hard delete")

    # The topic, as Confluent's server would have it.
    ms = p.read("_schemas")
    keys = [m.key().decode() for m in ms]
    check('{"keytype":"SCHEMA","subject":"t-value","version":1,"magic":1}' in keys, f"keys {keys}")
    check('{"keytype":"CONFIG","subject":"t-value","magic":0}' in keys, f"keys {keys}")
    check('{"keytype":"DELETE_SUBJECT","subject":"other-value","magic":0}' in keys, f"keys {keys}")
    check(all(m.partition() == 0 for m in ms), "one partition")
    value = json.loads(next(m.value() for m in ms if b'"t-value","version":2' in m.key()))
    check(value == {"subject": "t-value", "version": 2, "id": i2, "schema": V2, "deleted": False}, f"value {value}")

    # A second one does not write beside it.
    r = p.cli("registry", "--port", "0", ok=False, timeout=30)
    check(r.returncode == 1 and "--force" in r.stderr, f"a second registry: exit {r.returncode}: {r.stderr[-300:]}")

    # A topic that forgets by age is not written to: it would take schemas along that records still name.
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": p.bootstrap})
    for policy in ("delete", "compact,delete"):
        name = "forgets-" + policy.replace(",", "-")
        admin.create_topics([NewTopic(name, 1, 1, config={"cleanup.policy": policy})])[name].result(30)
        r = p.cli("registry", "--port", "0", "--topic", name, ok=False, timeout=30)
        check(r.returncode != 0 and f"cleanup.policy={policy}" in r.stderr and "kafka-configs" in r.stderr, f"{policy}: exit {r.returncode}: {r.stderr[-300:]}")

    # Restart: the same state.
    before = p.http("/schemas?deleted=true", p.registry)[1]
    stop(w)
    w = p.start_registry()
    check(p.http("/schemas?deleted=true", p.registry)[1] == before, "a restart changed what is there")
    check(json.loads(fresh().get_schema(i2).schema_str) == json.loads(V2), "an id means another schema after a restart")
    check(fresh().get_compatibility("t-value") == "FULL", "the level is kept")

    # Broker away: reads go on, writes are refused as an outage, nothing exits, and writing goes on by itself afterwards.
    p.kafka("kill", "1")
    status, body, _ = p.http("/subjects/x-value/versions", p.registry, json.dumps({"schema": '"int"'}).encode())
    check(status == 503 and json.loads(body)["error_code"] == 50002, f"a write without a broker: {status} {body[:200]}")
    check(fresh().get_versions("t-value") == [1, 2], "reads without a broker")
    check(w.poll() is None, "the registry exited because its broker went away")
    p.kafka("start", "1")
    until(lambda: p.http("/subjects/x-value/versions", p.registry, json.dumps({"schema": '"int"'}).encode())[0] == 200, 60, "writing after the outage")
    ids = [json.loads(m.value())["id"] for m in p.read("_schemas") if m.value() and b'"x-value"' in m.key()]
    check(len(set(ids)) == 1, f"the write that was in doubt and its repetition gave ids {ids}")
    stop(w)
print("the built-in registry serves Confluent's own client")
