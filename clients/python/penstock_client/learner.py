"""What a learner says of itself: a line of stdout that is a JSON object with "penstock": "metrics". Its supervisor makes a MetricPoint of it; run by hand it is a line that a person can read."""
import json, math, sys


def _number(name, value):
    """A float of whatever can be one: NumPy's scalars, tensors of one element (item()). JSON has no NaN; the platform takes it as a text."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        try:
            value = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"{name}={value!r} is no number") from None
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def log(values=None, *, step=None, epoch=None, group=None, file=None, **named):
    """One evaluation. values: a mapping, for names that are no Python words; named: the others. The line is written whole and at once."""
    line = {"penstock": "metrics"}
    for name, value in (("step", step), ("epoch", epoch)):
        if value is not None:
            line[name] = _number(name, value)
    if group is not None:
        line["group"] = str(group)
    numbers = {**(values or {}), **named}
    for name, value in numbers.items():
        if name in ("penstock", "step", "epoch", "group", "time"):
            raise ValueError(f"`{name}` is no name for a value")
        line[str(name)] = _number(name, value)
    if not numbers:
        raise ValueError("no values: log(loss=0.5)")
    out = file or sys.stdout
    out.write(json.dumps(line) + "\n")
    out.flush()
