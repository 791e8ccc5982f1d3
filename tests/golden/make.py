#!/usr/bin/env python3
"""Writes the golden bytes of every event schema with fastavro, an implementation that shares no code with ours.

    python3 tests/golden/make.py            writes tests/golden/<Record>.<case>.json and .avro
    python3 tests/golden/make.py --check    compares with the files that are there; exit status 1 if they differ

.json is the event as pst_event_to_json() prints it (bytes in base64), .avro its binary encoding without framing. Cases: `empty`, every
nullable field null and every list empty; `full`, everything set, with edges of the number types and text beyond ASCII. A changed golden
file means that what travels has changed: old records must still be readable (defaults), or the change is wrong.
Made with fastavro 1.12.1.
"""
import base64
import io
import json
import pathlib
import sys

import fastavro

HERE = pathlib.Path(__file__).resolve().parent
SCHEMAS = HERE.parent.parent / "schemas"
LONGS = [0, -1, 1, 63, 64, -64, -65, 8192, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 1732149408123456]
INTS = [0, 1, -1, 2**31 - 1, -(2**31), 300, -8193]
DOUBLES = [0.0, -0.5, 1e300, 3.141592653589793, 5e-324, -1e-7]
TEXTS = ["", "a", "Größe", "日本語", "line\nbreak \"quoted\" \\", "x" * 200]


class Maker:
    """Values by schema, counted through so that each field differs."""

    def __init__(self, full):
        self.full, self.at = full, 0

    def pick(self, choices):
        self.at += 1
        return choices[self.at % len(choices)]

    def value(self, schema, names):
        if isinstance(schema, str) and schema in names:
            schema = names[schema]
        if isinstance(schema, list):
            null = "null" in schema
            if null and not self.full:
                return None
            return self.value(next(s for s in schema if s != "null"), names)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "record":
            names[schema["name"]] = schema
            return {f["name"]: self.value(f["type"], names) for f in schema["fields"]}
        if kind == "enum":
            names[schema["name"]] = schema
            return self.pick(schema["symbols"]) if self.full else schema["symbols"][0]
        if kind == "array":
            return [self.value(schema["items"], names) for _ in range(3)] if self.full else []
        if kind == "map":
            return {k: self.value(schema["values"], names) for k in ("b", "a", "schlüssel")} if self.full else {}
        choices = {"string": TEXTS, "bytes": [b"\x00\xff\x80binary", bytes(range(256))], "int": INTS, "long": LONGS, "double": DOUBLES,
                   "boolean": [True, False], "float": [0.5, -2.0]}[kind]
        return self.pick(choices) if self.full else choices[0] if kind != "bytes" else b""


def as_json(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {k: as_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [as_json(v) for v in value]
    return value


def plain(schema):
    """Without logical types: fastavro would turn times into datetime objects."""
    if isinstance(schema, dict):
        return {k: plain(v) for k, v in schema.items() if k != "logicalType"}
    if isinstance(schema, list):
        return [plain(s) for s in schema]
    return schema


def main():
    differ = 0
    for path in sorted(SCHEMAS.glob("*.avsc")):
        schema = plain(json.loads(path.read_text()))
        parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
        for case in ("empty", "full"):
            value = Maker(case == "full").value(schema, {})
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, value, strict=True)
            text = json.dumps(as_json(value), indent=1, ensure_ascii=False) + "\n"
            for name, data in ((f"{path.stem}.{case}.json", text.encode()), (f"{path.stem}.{case}.avro", out.getvalue())):
                file = HERE / name
                if "--check" in sys.argv:
                    if not file.exists() or file.read_bytes() != data:
                        print(f"{name} differs")
                        differ += 1
                else:
                    file.write_bytes(data)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
