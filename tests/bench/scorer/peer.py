"""The same pipeline as users write it in Python: confluent-kafka, fastavro, onnxruntime; batches, one inference thread, the same guarantee.
Reads its settings as JSON from argv[1]; scores the topic to its end and prints nothing. One process, measured from outside."""
import io, json, struct, sys, time
import fastavro
import numpy as np
import onnxruntime as ort
from confluent_kafka import Consumer, KafkaError, Producer

conf = json.loads(sys.argv[1])
transactions = conf["guarantee"] == "exactly_once"
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = ort.InferenceSession(conf["model"], options, providers=["CPUExecutionProvider"])
input_name = session.get_inputs()[0].name
reader_schema, writer_schema = fastavro.parse_schema(conf["input_schema"]), fastavro.parse_schema(conf["output_schema"])
head = b"\0" + struct.pack(">I", conf["output_schema_id"])
features = conf["features"]
names, means = [f["field"] for f in features], [f["value"] for f in features]
scale = np.array([f["scale"] for f in features], dtype=np.float32)
offset = np.array([f["offset"] for f in features], dtype=np.float32)
model = {"name": conf["model_name"], "version": 0, "digest": conf["digest"]}
consumer = Consumer({"bootstrap.servers": conf["bootstrap"], "group.id": conf["group"], "enable.auto.commit": False, "auto.offset.reset": "earliest",
                     "enable.partition.eof": True, "isolation.level": "read_committed", "fetch.wait.max.ms": 100, "queued.min.messages": 1000000,
                     "check.crcs": True})
settings = {"bootstrap.servers": conf["bootstrap"], "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5, "queue.buffering.max.messages": 1000000}
if transactions:
    settings["transactional.id"] = conf["group"]
producer = Producer(settings)
if transactions:
    producer.init_transactions()
consumer.subscribe([conf["topic"]])
ended, done, started, opened = set(), 0, time.monotonic(), None


def commit():
    global opened
    if transactions:
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
        producer.commit_transaction()
    else:
        producer.flush()
        consumer.commit(asynchronous=False)
    opened = None


while done < conf["records"]:
    messages = [m for m in consumer.consume(conf["batch"], 0.05) if not m.error()]
    if messages:
        if opened is None:
            opened = time.monotonic()
            if transactions:
                producer.begin_transaction()
        rows = np.empty((len(messages), len(names)), dtype=np.float32)
        missing = []
        for i, m in enumerate(messages):
            r = fastavro.schemaless_reader(io.BytesIO(m.value()[5:]), reader_schema, None)
            gone = []
            for k, name in enumerate(names):
                v = r[name]
                if v is None:
                    gone.append(name)
                    v = means[k]
                rows[i, k] = v
            missing.append(gone)
        rows = rows * scale + offset
        y = session.run(None, {input_name: rows})[-1]
        error = np.mean((rows.astype(np.float64) - y) ** 2, axis=1)
        now = int(time.time() * 1e6)
        for i, m in enumerate(messages):
            out = io.BytesIO(head)
            out.seek(5)
            stamp = m.timestamp()[1]
            fastavro.schemaless_writer(out, writer_schema, {
                "score": [float(error[i])], "label": None, "model": model, "variant": "PRIMARY", "scored_at": now, "missing": missing[i], "threshold": None,
                "source": {"topic": m.topic(), "partition": m.partition(), "offset": m.offset(), "timestamp": stamp * 1000}})
            while True:
                try:
                    producer.produce(conf["output"], out.getvalue(), key=m.key(), partition=m.partition(), timestamp=stamp)
                    break
                except BufferError:
                    producer.poll(0.05)
        done += len(messages)
        producer.poll(0)
    if opened is not None and (len(messages) < conf["batch"] or time.monotonic() - opened >= 0.1 or done >= conf["records"]):
        commit()
consumer.close()
